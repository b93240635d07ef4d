//! Products that are timed to find out how fast a device is.

use super::Tuning;
use crate::Result;
use crate::gpu::device::Gpu;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::{Frame, new_table};
use crate::gpu::steps::encode_step;
use crate::ops::StepValues;
use crate::shader::product::{
    Cut, EVEN, Finish, HUGE, LARGE, Matrix, Operands, Problem, Storage, TINY, Tile, TileSpeeds, tiles,
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
const MOST: usize = 256;
/// Rows and columns of the largest product: of smaller ones a large device's last round of workgroups would be too much.
const LARGEST: usize = 4096;
/// Its summed extent, and that of the product of a workgroup by itself.
const DEPTH: usize = 1024;
/// Parts of a product whose sums are added up.
const PARTS: usize = 8;
/// What part of the time a frame takes to be recorded, from which on it is not the device that takes it.
const HOST_BOUND: f64 = 0.7;

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
    let known: Vec<TileSpeeds> = tiles().collect();
    let of = |tile: Tile| known.iter().position(|known| known.tile == tile).unwrap_or(0);
    // One workgroup of the first kind fills a multiprocessor; the time of one of the second is waiting.
    let filling = [HUGE, LARGE, EVEN].into_iter().find(&fits).unwrap_or(EVEN);
    let (filling, waiting) = (known[of(filling)], known[of(EVEN)]);

    // Everything is compiled before anything is timed.
    let full = bench.extents();
    let alone = |known: &TileSpeeds| [known.tile.rows as usize, known.tile.columns as usize, DEPTH];
    let mut products = vec![
        bench.product([16; 3], KINDS[0], TINY, 1)?,
        bench.product(alone(&filling), KINDS[0], filling.tile, 1)?,
        bench.product(full, KINDS[0], filling.tile, 1)?,
        bench.product(alone(&waiting), KINDS[0], waiting.tile, 1)?,
        bench.product(full, KINDS[0], waiting.tile, 1)?,
        bench.product(full, KINDS[0], waiting.tile, PARTS)?,
    ];
    let first = products.len();
    let mut places = vec![[None; 3]; TILES];
    if tuning == Tuning::Full {
        for (place, known) in places.iter_mut().zip(&known).filter(|(_, known)| fits(&known.tile)) {
            for (place, kind) in place.iter_mut().zip(KINDS) {
                *place = Some(products.len());
                products.push(bench.product(full, kind, known.tile, 1)?);
            }
        }
    }
    let times = bench.times(&products)?;
    let shipped = Speeds::SHIPPED;
    let [small, ..] = times[..] else { return Ok(shipped) };
    // What a kernel takes that computes next to nothing; where the host does not keep up with it, no more is known
    // than that it is less.
    let dispatch = match small.host_bound {
        true => small.seconds.min(f64::from(shipped.dispatch) / 1e9),
        false => small.seconds,
    };
    let net = |place: usize| (times[place].seconds - dispatch).max(times[place].seconds / 4.0);
    let operations = |[rows, columns, depth]: [usize; 3]| 2.0 * (rows * columns * depth) as f64;
    let rate = |place: usize| operations(full) / net(place);

    // As many multiprocessors as it takes to be as fast as the device is.
    let share = filling.alone.min(1.0);
    let processors = (rate(2) * net(1) * share / operations(alone(&filling))).round().max(1.0);
    let shipped_processors = f64::from(shipped.processors);
    let of_one = |rate: f64, known: f64| thousandths(rate / processors / (known * 1e12 / shipped_processors));
    // What both tiles have in common.
    let common = (of_one(rate(2), filling.rates[0]) + of_one(rate(4), waiting.rates[0])) / 2;
    let steps = DEPTH / waiting.tile.step() as usize;
    let latency = net(3) / (steps as f64 * waiting.step * 1e-6);
    // What is written in parts and added up again.
    let bytes = (2 * PARTS * full[0] * full[1] * 4) as f64;
    let traffic = bytes / (times[5].seconds - times[4].seconds - dispatch).max(bytes / 1e13) / 1e6;

    let mut factors = [[common; 3]; TILES];
    for ((factors, places), known) in factors.iter_mut().zip(&places).zip(&known) {
        for ((factor, place), known) in factors.iter_mut().zip(places).zip(known.rates) {
            if let Some(place) = place.filter(|place| *place >= first) {
                *factor = of_one(rate(place), known);
            }
        }
    }
    Ok(Speeds {
        processors: processors as u32,
        tiles: factors,
        latency: thousandths(latency),
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

/// A product that is compiled.
struct Prepared {
    dispatches: Vec<Dispatch>,
    output: Operand,
}

/// What one takes.
#[derive(Clone, Copy)]
struct Time {
    seconds: f64,
    /// Whether recording it takes most of that.
    host_bound: bool,
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
        // The largest that takes no longer than it should.
        while bench.side < LARGEST {
            let product = bench.product(bench.extents(), KINDS[0], EVEN, 1)?;
            if bench.run(&product, 1)?.seconds >= TOO_LONG / 4.0 {
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

    /// Runs a product so many times, each of which waits for the one before.
    fn run(&self, product: &Prepared, times: usize) -> Result<Time> {
        let begun = Instant::now();
        let mut frame = Frame::begin(self.gpu, &self.table);
        for _ in 0..times {
            product.dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
        }
        let recorded = begun.elapsed().as_secs_f64();
        frame.finish(1)?;
        // Waits for the frame.
        self.gpu.download(&mut [(product.output.slice(0, 1)?, &mut [0; 4])])?;
        let taken = begun.elapsed().as_secs_f64();
        Ok(Time { seconds: taken / times as f64, host_bound: recorded > HOST_BOUND * taken })
    }

    /// What each product takes: the least of three rounds, in turn, on a device that is warm.
    fn times(&self, products: &[Prepared]) -> Result<Vec<Time>> {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < WARM {
            products.iter().try_for_each(|product| self.run(product, 4).map(|_| ()))?;
        }
        let often = products.iter().map(|product| {
            let one = self.run(product, 4)?.seconds;
            Ok((LONG / one.max(1e-9)).ceil().clamp(1.0, MOST as f64) as usize)
        });
        let often: Vec<usize> = often.collect::<Result<_>>()?;
        let mut best = vec![Time { seconds: f64::INFINITY, host_bound: false }; products.len()];
        for _ in 0..3 {
            for ((product, times), best) in products.iter().zip(&often).zip(&mut best) {
                let found = self.run(product, *times)?;
                if found.seconds < best.seconds {
                    *best = found;
                }
            }
        }
        Ok(best)
    }
}
