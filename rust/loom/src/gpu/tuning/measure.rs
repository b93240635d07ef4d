//! Products that are timed to find out how fast a device is.

use super::Tuning;
use crate::Result;
use crate::gpu::device::Gpu;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::gpu::steps::encode_step;
use crate::ops::StepValues;
use crate::shader::product::{Cut, EVEN, Finish, Matrix, Operands, Problem, Storage, TINY, Tile, tiles};
use crate::shader::{Accelerator, Operand, Recorder, Speeds, TILES};
use std::time::Instant;

/// Seconds that a frame takes at least which is timed.
const LONG: f64 = 3e-3;
/// Seconds that one product may take: a device that takes longer is measured with smaller ones.
const TOO_LONG: f64 = 20e-3;
/// Kernels of one frame, at most.
const MOST: usize = 256;
/// Rows and columns of the largest product: of smaller ones a large device's last round of workgroups would be too much.
const LARGEST: usize = 4096;
/// Its summed extent, and that of the product of a workgroup by itself.
const DEPTH: usize = 1024;
/// Parts of a product whose sums are added up.
const PARTS: usize = 8;

/// How an operand is stored.
const KINDS: [[bool; 2]; 3] = [[false, false], [false, true], [true, false]];

/// Measures a device.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) where it fails, or has no memory left.
pub(super) fn speeds(gpu: &Gpu, tuning: Tuning) -> Result<Speeds> {
    let bench = Bench::new(gpu)?;
    let known: Vec<_> = tiles().collect();
    // What a kernel takes that computes next to nothing.
    let dispatch = bench.seconds([16; 3], KINDS[0], TINY, 1)?;
    let (place, even) = known.iter().enumerate().find(|(_, known)| known.0 == EVEN).unwrap_or((0, &known[0]));
    let (_, resident, alone, rates) = *even;
    let full = bench.rate(KINDS[0], EVEN, dispatch)?;

    // One workgroup, and so the multiprocessors that it takes to be as fast as the device is.
    let side = EVEN.rows as usize;
    let products = 2.0 * (side * side * DEPTH) as f64;
    let by_itself = (bench.seconds([side, side, DEPTH], KINDS[0], EVEN, 1)? - dispatch).max(1e-7);
    let share = (1.0 / alone).min(resident as f64);
    let processors = (full * by_itself / share / products).round().max(1.0);
    // As long as one takes on the device that is shipped.
    let shipped = Speeds::SHIPPED;
    let expected = products / (rates[0] * 1e12 / f64::from(shipped.processors)) * share;
    let of_one = |rate: f64, known: f64| {
        thousandths(rate / processors / (known * 1e12 / f64::from(shipped.processors)))
    };

    // What is written in parts and added up again.
    let extents = bench.extents();
    let whole = bench.seconds(extents, KINDS[0], EVEN, 1)?;
    let in_parts = bench.seconds(extents, KINDS[0], EVEN, PARTS)?;
    let bytes = (2 * PARTS * extents[0] * extents[1] * 4) as f64;
    let traffic = bytes / (in_parts - whole - dispatch).max(bytes / 1e13) / 1e6;

    let mut tiles = [[of_one(full, rates[0]); 3]; TILES];
    if tuning == Tuning::Full {
        let capabilities = gpu.capabilities();
        for (number, (tile, _, _, rates)) in known.iter().enumerate() {
            let fits = tile.threads() as usize <= capabilities.workgroup_threads
                && tile.workgroup_bytes(true) as usize <= capabilities.workgroup_storage;
            for (kind, transposed) in KINDS.into_iter().enumerate().filter(|_| fits) {
                if (number, kind) != (place, 0) {
                    tiles[number][kind] = of_one(bench.rate(transposed, *tile, dispatch)?, rates[kind]);
                }
            }
        }
    }
    Ok(Speeds {
        processors: processors as u32,
        tiles,
        latency: thousandths(by_itself / expected),
        dispatch: whole_number(dispatch * 1e9),
        traffic: whole_number(traffic),
    })
}

/// A number as so many thousandths.
fn thousandths(number: f64) -> u32 {
    whole_number(number * 1000.0)
}

/// The nearest whole number from 1 on.
fn whole_number(number: f64) -> u32 {
    number.round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Operands in a device's memory.
struct Bench<'a> {
    gpu: &'a Gpu,
    /// Rows and columns of the products that fill the device.
    side: usize,
    left: Operand,
    right: Operand,
    output: Operand,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self> {
        let upload = |len: usize| -> Result<Operand> {
            let operand = Operand::allocate(gpu, "measuring its speed", len)?;
            // Multiplying zeros takes less power, and so less time, than multiplying numbers.
            let number = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7 & 0xFFFF) as f32 / 65536.0 - 0.5;
            let numbers: Vec<f32> = (0..len).map(number).collect();
            gpu.upload(operand.allocation(), 0, bytemuck::cast_slice(&numbers));
            Ok(operand)
        };
        let mut bench = Self {
            gpu,
            side: 256,
            left: upload(LARGEST * DEPTH)?,
            right: upload(LARGEST * DEPTH)?,
            output: Operand::allocate(gpu, "measuring its speed", LARGEST * LARGEST)?,
        };
        // The largest that takes no longer than it should.
        while bench.side < LARGEST && bench.seconds(bench.extents(), KINDS[0], EVEN, 1)? < TOO_LONG / 4.0 {
            bench.side *= 2;
        }
        Ok(bench)
    }

    fn extents(&self) -> [usize; 3] {
        [self.side, self.side, DEPTH]
    }

    /// Operations a second where the device is full.
    fn rate(&self, transposed: [bool; 2], tile: Tile, dispatch: f64) -> Result<f64> {
        let [rows, columns, depth] = self.extents();
        let seconds = self.seconds([rows, columns, depth], transposed, tile, 1)?;
        Ok(2.0 * (rows * columns * depth) as f64 / (seconds - dispatch).max(seconds / 2.0))
    }

    /// Seconds that one product takes among others, each of which waits for the one before.
    fn seconds(
        &self,
        [rows, columns, depth]: [usize; 3],
        [left, right]: [bool; 2],
        tile: Tile,
        parts: usize,
    ) -> Result<f64> {
        let matrix = |transposed, rows, columns| match transposed {
            true => Matrix::transposed(rows),
            false => Matrix::plain(columns),
        };
        let problem = Problem {
            rows,
            columns,
            depth,
            left: matrix(left, rows, depth),
            right: matrix(right, depth, columns),
            storage: Storage::Float32,
            output: Matrix::plain(columns),
            accumulate: false,
            bias: false,
            finish: Finish::None,
            mixed: false,
        };
        let output = self.output.slice(0, rows * columns)?;
        let operands = Operands {
            left: &self.left,
            right: &self.right,
            bias: None,
            saved: None,
            residual: None,
            output: &output,
        };
        let mut recorder = Recorder::new(self.gpu, rows, output.clone());
        problem.record(&mut recorder, Cut::Tiles(tile, parts), None, &operands)?;
        let dispatches = Dispatch::all(self.gpu, recorder.recorded, 0);
        let (table, group) = new_table(self.gpu, 1)?;
        self.gpu.upload(&table, 0, &encode_step(&StepValues::default(), 0));
        let run = |times: usize| -> Result<f64> {
            let begun = Instant::now();
            let mut frame = Frame::begin(self.gpu, &group);
            for _ in 0..times {
                dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
            }
            frame.finish(1)?;
            // Waits for the frame.
            self.gpu.download(&mut [(output.slice(0, 1)?, &mut [0; 4])])?;
            Ok(begun.elapsed().as_secs_f64())
        };
        // The first one is compiled, the second one tells how many are worth timing. An idle device's clock is low.
        run(1)?;
        let one = run(1)?;
        let times = (LONG / one.max(1e-9)).ceil().clamp(1.0, MOST as f64) as usize;
        let times = if one < LONG { MOST.min(4 * times) } else { times };
        let mut best = run(times)?;
        for _ in 0..2 {
            best = best.min(run(times)?);
        }
        Ok(best / times as f64)
    }
}
