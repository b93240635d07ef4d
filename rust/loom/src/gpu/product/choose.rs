//! Which kernel for which extents: the one a small model of a large GPU finds fastest.
//!
//! The figures were measured on an NVIDIA H200 (132 multiprocessors). Another device gets
//! results just as right, and in the same order of sums; only speed was tuned there.

use super::plan::{Cut, Limits, few_rows_will_do};
use super::tile::Tile;

/// Where C is large. B's stored transpose suits [`TALL`] better.
pub const HUGE: Tile = Tile::new(128, 256, 16, 8, 16);
/// As large, for a B that is contiguous along the summed extent.
pub const TALL: Tile = Tile::new(256, 128, 8, 16, 8);
/// Where the next larger ones would leave multiprocessors idle.
pub const BROAD: Tile = Tile::new(128, 128, 16, 8, 16);
/// Likewise; the largest that fits 16 KiB of workgroup memory.
pub const LARGE: Tile = Tile::new(64, 128, 16, 8, 8);
/// Likewise.
pub const MEDIUM: Tile = Tile::new(64, 64, 16, 8, 4).sliced(2);
/// For C of few tiles.
pub const SMALL: Tile = Tile::new(32, 32, 16, 4, 4);
/// For C of very few tiles, or few columns.
pub const TINY: Tile = Tile::new(16, 16, 16, 4, 4).sliced(4);

/// What is known of a tile's speed.
struct Candidate {
    tile: Tile,
    /// TFLOP/s when every multiprocessor is full: B across, and B along the depth.
    rates: [f64; 2],
    /// Workgroups that a multiprocessor holds.
    resident: usize,
    /// What part of the rate a multiprocessor with one workgroup reaches.
    alone: f64,
    /// Microseconds from one barrier to the next when nothing hides the loads.
    step: f64,
}

const CANDIDATES: [Candidate; 7] = [
    Candidate { tile: HUGE, rates: [48.5, 45.0], resident: 1, alone: 1.0, step: 2.0 },
    Candidate { tile: TALL, rates: [44.0, 46.3], resident: 1, alone: 1.0, step: 1.0 },
    Candidate { tile: BROAD, rates: [47.5, 42.0], resident: 2, alone: 0.96, step: 1.0 },
    Candidate { tile: LARGE, rates: [45.5, 43.0], resident: 3, alone: 0.83, step: 0.6 },
    Candidate { tile: MEDIUM, rates: [36.0, 31.0], resident: 2, alone: 0.95, step: 0.5 },
    Candidate { tile: SMALL, rates: [25.0, 24.0], resident: 12, alone: 0.25, step: 0.3 },
    Candidate { tile: TINY, rates: [12.0, 12.0], resident: 12, alone: 0.25, step: 0.55 },
];

const PROCESSORS: usize = 132;
/// Microseconds that a dispatch takes at least, the wait for what came before included.
const DISPATCH: f64 = 2.6;
/// Microseconds that adding up the parts takes at least.
const REDUCE: f64 = 3.3;
/// Bytes a microsecond at which parts are written and read again.
const PARTS_TRAFFIC: f64 = 2e6;
/// Parts that are tried.
const PARTS: [usize; 5] = [1, 2, 4, 8, 16];
/// The fewest products worth a part of their own.
const LEAST_PART: usize = 64;

/// The cut for these extents; it depends on them and the device's limits alone.
pub(super) fn choose(
    [rows, columns, depth]: [usize; 3],
    [left_transposed, right_transposed]: [bool; 2],
    limits: &Limits,
) -> Cut {
    if few_rows_will_do(rows, left_transposed) {
        // One workgroup for 8 or 32 columns; parts where those are few and long.
        let groups = columns.div_ceil(if right_transposed { 8 } else { 32 });
        return Cut::FewRows((512 / groups.max(1)).min(depth / 1024).clamp(1, 16));
    }
    let mut best = (f64::INFINITY, Cut::Tiles(SMALL, 1));
    for candidate in &CANDIDATES {
        let tile = candidate.tile;
        if tile.threads() as usize > limits.threads
            || tile.workgroup_bytes(true) as usize > limits.workgroup_bytes
        {
            continue;
        }
        for parts in PARTS {
            if parts > 1 && depth / parts < LEAST_PART {
                break;
            }
            let time = candidate.time([rows, columns, depth], parts, right_transposed);
            if time < best.0 {
                best = (time, Cut::Tiles(tile, parts));
            }
        }
    }
    best.1
}

impl Candidate {
    /// Microseconds that the product is expected to take.
    fn time(&self, [rows, columns, depth]: [usize; 3], parts: usize, right_transposed: bool) -> f64 {
        let tile = &self.tile;
        let (high, wide) = (tile.rows as usize, tile.columns as usize);
        let steps = depth.div_ceil(parts).div_ceil(tile.step() as usize).max(1);
        let groups = rows.div_ceil(high) * columns.div_ceil(wide) * parts;
        // One workgroup's share of a multiprocessor that is full.
        let products = (high * wide * steps * tile.step() as usize) as f64;
        let work = 2.0 * products * PROCESSORS as f64 / (self.rates[usize::from(right_transposed)] * 1e6);
        let busy =
            |resident: usize| (work * (resident as f64).max(1.0 / self.alone)).max(steps as f64 * self.step);
        // Workgroups that start together end together, so the next ones fill whole multiprocessors.
        let slots = PROCESSORS * self.resident;
        let time = match groups / slots {
            0 => busy(groups.div_ceil(PROCESSORS)),
            _ => busy(self.resident) * groups.div_ceil(slots) as f64,
        };
        let reduce = match parts {
            1 => 0.0,
            _ => REDUCE + (2 * parts * rows * columns * 4) as f64 / PARTS_TRAFFIC,
        };
        DISPATCH + time + reduce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Limits = Limits { workgroup_bytes: 49152, threads: 1024 };
    const SPARE: Limits = Limits { workgroup_bytes: 16384, threads: 256 };

    #[test]
    fn the_cut_suits_the_extents() {
        let plain = [false, false];
        assert_eq!(choose([4096; 3], plain, &ROOMY), Cut::Tiles(HUGE, 1));
        assert_eq!(choose([4096; 3], [false, true], &ROOMY), Cut::Tiles(TALL, 1));
        assert_eq!(choose([1024; 3], plain, &ROOMY), Cut::Tiles(LARGE, 1));
        assert_eq!(choose([64, 512, 512], plain, &ROOMY), Cut::Tiles(TINY, 1));
        assert!(matches!(choose([64, 512, 784], plain, &ROOMY), Cut::Tiles(SMALL, 4..)));
        assert!(matches!(choose([64, 10, 512], plain, &ROOMY), Cut::Tiles(TINY, 2..)));
        assert_eq!(choose([1, 512, 784], plain, &ROOMY), Cut::FewRows(1));
        assert_eq!(choose([1, 4096, 4096], plain, &ROOMY), Cut::FewRows(4));
    }

    #[test]
    fn limits_are_kept() {
        for extents in [[1, 1, 1], [64, 512, 784], [1024; 3], [4096; 3], [8192, 8, 1 << 20]] {
            for right_transposed in [false, true] {
                let Cut::Tiles(tile, parts) = choose(extents, [true, right_transposed], &SPARE) else {
                    panic!("a transposed left operand needs tiles");
                };
                assert!(tile.threads() <= 256 && tile.workgroup_bytes(true) <= 16384, "{tile:?}");
                assert!((1..=16).contains(&parts));
            }
        }
    }
}
