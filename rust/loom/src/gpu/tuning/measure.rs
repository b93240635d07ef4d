//! Products that are timed to find out how fast a device is.

use super::setting::Tuning;
use crate::Result;
use crate::gpu::device::Gpu;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::gpu::steps::encode_step;
use crate::ops::StepValues;
use crate::shader::product::{
    Cut, EVEN, Finish, HUGE, Matrix, Operands, Problem, Storage, TINY, Tile, tiles,
};
use crate::shader::{Accelerator, Operand, Recorder, Speeds, TILES};
use std::time::Instant;

/// Seconds that a frame takes at least which is timed.
const LONG: f64 = 3e-3;
/// Seconds for which the device is kept busy before: an idle one's clock is low.
const WARM: f64 = 0.15;
/// Seconds that one product may take: a device that takes longer is measured with smaller ones.
const TOO_LONG: f64 = 20e-3;
/// Kernels of one frame, at most.
const MOST: usize = 128;
/// Rows and columns of the largest product: of smaller ones a large device's last round of workgroups would be too much.
const LARGEST: usize = 4096;
/// Its summed extent, and that of the product of a workgroup by itself.
const DEPTH: usize = 1024;
/// Parts of a product whose sums are added up.
const PARTS: usize = 8;
/// How many times as long as the shorter of two frames the longer one is.
const FURTHER: usize = 4;

/// Microseconds that an NVIDIA H100 takes, in the order of the first products of [`speeds`]: other devices' are compared with
/// them, so that what such a measurement leaves out or counts in does not matter.
const REFERENCE: [f64; 6] = [3.4, 186.0, 738.0, 37.4, 858.0, 1130.0];

/// The same of every tile and kind.
const TILE_REFERENCE: [[f64; 3]; TILES] = [
    [735.0, 764.0, 727.0],
    [876.0, 860.0, 839.0],
    [746.0, 785.0, 719.0],
    [751.0, 782.0, 758.0],
    [784.0, 926.0, 747.0],
    [1094.0, 1180.0, 1089.0],
    [1031.0, 1157.0, 954.0],
    [1021.0, 1047.0, 1034.0],
    [853.0, 899.0, 891.0],
    [1250.0, 1364.0, 1152.0],
    [2711.0, 3337.0, 1733.0],
];

/// How an operand is stored.
const KINDS: [[bool; 2]; 3] = [[false, false], [false, true], [true, false]];

/// Measures a device.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) where it fails, or has no memory left.
pub(super) fn speeds(gpu: &Gpu, tuning: Tuning) -> Result<Speeds> {
    let bench = Bench::new(gpu)?;
    let capabilities = gpu.capabilities();
    let fits = |tile: &Tile| {
        tile.threads() as usize <= capabilities.workgroup_threads
            && tile.workgroup_bytes(true) as usize <= capabilities.workgroup_storage
    };
    // One workgroup of the first kind fills a multiprocessor; what one of the second does is wait.
    let (filling, waiting) = (if fits(&HUGE) { HUGE } else { EVEN }, EVEN);

    // Everything is compiled before anything is timed.
    let full = bench.extents();
    let alone = |tile: &Tile| [tile.rows as usize, tile.columns as usize, DEPTH];
    let mut products = vec![
        // What a kernel takes that computes next to nothing.
        bench.product([16; 3], KINDS[0], TINY, 1)?,
        bench.product(alone(&filling), KINDS[0], filling, 1)?,
        bench.product(full, KINDS[0], filling, 1)?,
        bench.product(alone(&waiting), KINDS[0], waiting, 1)?,
        bench.product(full, KINDS[0], waiting, 1)?,
        bench.product(full, KINDS[0], waiting, PARTS)?,
    ];
    let mut places = Vec::new();
    if tuning == Tuning::Full {
        for (number, tile) in tiles().enumerate().filter(|(_, tile)| fits(tile)) {
            for (kind, transposed) in KINDS.into_iter().enumerate() {
                places.push((number, kind, products.len()));
                products.push(bench.product(full, transposed, tile, 1)?);
            }
        }
    }
    let times = bench.times(&products)?;
    // How many times as long something takes as on the device that the shipped speeds are of.
    let slower = |place: usize, reference: f64| times[place] * 1e6 / reference;
    let [small, filling_alone, filling_full, waiting_alone, waiting_full, waiting_parts] =
        match filling == HUGE {
            true => REFERENCE,
            false => [REFERENCE[0], REFERENCE[3], REFERENCE[4], REFERENCE[3], REFERENCE[4], REFERENCE[5]],
        };
    // Products that fill a device may be smaller than there.
    let smaller = (bench.side * bench.side) as f64 / (LARGEST * LARGEST) as f64;
    let arithmetic = |place: usize, reference: f64| smaller / slower(place, reference);

    // As many multiprocessors as it takes to be as fast as the device is.
    let shipped = Speeds::SHIPPED;
    let share =
        (arithmetic(2, filling_full) * slower(1, filling_alone)).max(1.0 / f64::from(shipped.processors));
    let of_one = |place: usize, reference: f64| thousandths(arithmetic(place, reference) / share);
    let common = (of_one(2, filling_full) + of_one(4, waiting_full)) / 2;
    let mut factors = [[common.max(1); 3]; TILES];
    for (number, kind, place) in places {
        factors[number][kind] = of_one(place, TILE_REFERENCE[number][kind]);
    }
    // What is written in parts and added up again.
    let adding = (times[5] - times[4]).max(times[4] / 100.0) * 1e6;
    let traffic = smaller * (waiting_parts - waiting_full) / adding;
    Ok(Speeds {
        processors: whole_number(share * f64::from(shipped.processors)),
        tiles: factors,
        latency: thousandths(slower(3, waiting_alone)),
        dispatch: whole_number(f64::from(shipped.dispatch) * slower(0, small)),
        traffic: whole_number(f64::from(shipped.traffic) * traffic),
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

/// A product that is compiled.
struct Prepared {
    dispatches: Vec<Dispatch>,
    output: Operand,
}

/// Operands in a device's memory.
struct Bench<'a> {
    gpu: &'a Gpu,
    table: wgpu::BindGroup,
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
        let (steps, table) = new_table(gpu, 1)?;
        gpu.upload(&steps, 0, &encode_step(&StepValues::default(), 0));
        let mut bench = Self {
            gpu,
            table,
            side: 256,
            left: upload(LARGEST * DEPTH)?,
            right: upload(LARGEST * DEPTH)?,
            output: Operand::allocate(gpu, "measuring its speed", LARGEST * LARGEST)?,
        };
        // The largest that takes no longer than it should, of whose parts a kernel sees all.
        let seen = |side: usize| PARTS * side * side * size_of::<f32>() <= gpu.capabilities().max_binding;
        while bench.side < LARGEST && seen(2 * bench.side) {
            let product = bench.product(bench.extents(), KINDS[0], EVEN, 1)?;
            if bench.run(&product, 1)? >= TOO_LONG / 4.0 {
                break;
            }
            bench.side *= 2;
        }
        Ok(bench)
    }

    fn extents(&self) -> [usize; 3] {
        [self.side, self.side, DEPTH]
    }

    /// A product that has run once.
    fn product(
        &self,
        [rows, columns, depth]: [usize; 3],
        [left, right]: [bool; 2],
        tile: Tile,
        parts: usize,
    ) -> Result<Prepared> {
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
        let product = Prepared { dispatches: Dispatch::all(self.gpu, recorder.recorded, 0), output };
        self.run(&product, 1)?;
        Ok(product)
    }

    /// Seconds of a frame of so many times a product, each of which waits for the one before.
    fn run(&self, product: &Prepared, times: usize) -> Result<f64> {
        let begun = Instant::now();
        let mut frame = Frame::begin(self.gpu, &self.table);
        for _ in 0..times {
            product.dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
        }
        frame.finish(1)?;
        // Waits for the frame.
        self.gpu.download(&mut [(product.output.slice(0, 1)?, &mut [0; 4])])?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// What each product takes beside others of a frame: the least of three rounds, in turn, on a device that is warm.
    fn times(&self, products: &[Prepared]) -> Result<Vec<f64>> {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < WARM {
            products.iter().try_for_each(|product| self.run(product, 4).map(|_| ()))?;
        }
        let often = products.iter().map(|product| {
            let one = self.run(product, 4)? / 4.0;
            Ok((LONG / one.max(1e-9)).ceil().clamp(1.0, MOST as f64) as usize)
        });
        let often: Vec<usize> = often.collect::<Result<_>>()?;
        let mut best = vec![[f64::INFINITY; 2]; products.len()];
        for _ in 0..3 {
            for ((product, times), best) in products.iter().zip(&often).zip(&mut best) {
                for (best, times) in best.iter_mut().zip([*times, FURTHER * times]) {
                    *best = best.min(self.run(product, times)?);
                }
            }
        }
        // Without what a frame takes whatever is in it.
        let each = |([few, many], times): (&[f64; 2], &usize)| (many - few) / ((FURTHER - 1) * times) as f64;
        Ok(best.iter().zip(&often).map(each).map(|seconds| seconds.max(1e-8)).collect())
    }
}
