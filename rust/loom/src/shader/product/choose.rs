//! Which kernel for which extents: the one a small model of a large GPU finds fastest.
//!
//! The figures were measured on an NVIDIA H200 (132 multiprocessors); how another device's speeds compare with them is in
//! its [`Speeds`]. Whatever is chosen gives results just as right, but parts of a sum are added up in another order than the whole.

use super::cut::{Cut, Limits};
use super::few_columns::{group_rows, lanes, threads};
use super::few_rows::MAX_ROWS;
use super::tile::Tile;
use super::units;
use crate::shader::{Speeds, TILES};

/// Where C is large. B's stored transpose suits [`TALL`] better.
pub const HUGE: Tile = Tile::new(128, 256, 16, 8, 16);
/// As large, for a B that is contiguous along the summed extent.
pub const TALL: Tile = Tile::new(256, 128, 8, 16, 8);
/// Where the next larger ones would leave multiprocessors idle.
pub const BROAD: Tile = Tile::new(128, 128, 16, 8, 16);
/// Likewise, and where sums are short: two of these on a multiprocessor hide each other's first loads and last stores.
pub const SQUARE: Tile = Tile::new(128, 128, 16, 8, 8);
/// Likewise; the largest that fits 16 KiB of workgroup memory.
pub const LARGE: Tile = Tile::new(64, 128, 16, 8, 8);
/// Likewise.
pub const MEDIUM: Tile = Tile::new(64, 64, 8, 8, 4).sliced(2);
/// Likewise, for an A that is stored transposed.
pub const DEEP: Tile = Tile::new(64, 64, 16, 8, 4).sliced(2);
/// Where elements have to be loaded one at a time: more sums a thread would not leave the
/// registers that this takes.
pub const EVEN: Tile = Tile::new(64, 64, 16, 8, 4);
/// Where columns come in 96, and B is as it is.
pub const SLIM: Tile = Tile::new(64, 96, 16, 8, 12);
/// For C of few tiles.
pub const SMALL: Tile = Tile::new(32, 32, 16, 4, 4);
/// For C of very few tiles, or few columns.
pub const TINY: Tile = Tile::new(16, 16, 16, 4, 4).sliced(4);

/// What is known of a tile's speed.
struct Candidate {
    tile: Tile,
    /// TFLOP/s when every multiprocessor is full: neither operand transposed, B transposed, A
    /// transposed.
    rates: [f64; 3],
    /// Workgroups that a multiprocessor holds.
    resident: usize,
    /// What part of the rate a multiprocessor with one workgroup reaches.
    alone: f64,
    /// Microseconds from one barrier to the next when nothing hides the loads.
    step: f64,
    /// What part of that speed is left where elements are loaded one at a time.
    single: f64,
    /// Microseconds for first loads and last stores, where nothing hides them.
    ends: f64,
}

#[rustfmt::skip]
const CANDIDATES: [Candidate; TILES] = [
    Candidate { tile: HUGE, rates: [48.5, 45.0, 48.5], resident: 1, alone: 1.0, step: 2.0, single: 0.43, ends: 12.0 },
    Candidate { tile: TALL, rates: [47.5, 46.4, 41.5], resident: 1, alone: 1.0, step: 1.0, single: 0.43, ends: 18.0 },
    Candidate { tile: BROAD, rates: [47.0, 42.0, 48.0], resident: 2, alone: 0.5, step: 1.0, single: 0.4, ends: 12.0 },
    Candidate { tile: SQUARE, rates: [46.5, 46.0, 44.0], resident: 2, alone: 0.7, step: 0.8, single: 0.4, ends: 6.0 },
    Candidate { tile: LARGE, rates: [45.5, 43.0, 43.0], resident: 3, alone: 0.83, step: 0.6, single: 0.68, ends: 0.0 },
    Candidate { tile: MEDIUM, rates: [33.0, 33.0, 28.0], resident: 2, alone: 0.95, step: 0.54, single: 0.5, ends: 0.0 },
    Candidate { tile: DEEP, rates: [34.0, 30.0, 36.0], resident: 2, alone: 0.95, step: 1.1, single: 0.5, ends: 0.0 },
    Candidate { tile: SLIM, rates: [42.0, 25.0, 20.0], resident: 4, alone: 0.5, step: 0.6, single: 0.4, ends: 0.0 },
    Candidate { tile: EVEN, rates: [43.0, 36.0, 39.5], resident: 5, alone: 0.43, step: 0.5, single: 0.75, ends: 0.0 },
    Candidate { tile: SMALL, rates: [25.0, 24.0, 25.0], resident: 12, alone: 0.35, step: 0.3, single: 0.65, ends: 0.0 },
    Candidate { tile: TINY, rates: [8.5, 8.5, 8.5], resident: 12, alone: 1.0, step: 0.62, single: 0.7, ends: 0.0 },
];

/// Tiles in the order of [`Speeds::tiles`].
pub fn tiles() -> impl Iterator<Item = Tile> {
    CANDIDATES.iter().map(|candidate| candidate.tile)
}

/// Multiprocessors of the device that the figures are of.
const MEASURED: f64 = Speeds::SHIPPED.processors as f64;
/// Microseconds that adding up the parts takes at least, beside those of a dispatch.
const REDUCE: f64 = 0.7;
/// Microseconds for the loads of one step of the kernel for few columns, or of four together.
const FEW_COLUMNS_STEP: f64 = 0.8;
/// Microseconds that its tree takes.
const FEW_COLUMNS_TREE: f64 = 0.5;
/// Reads a microsecond of one multiprocessor, each of 32 neighbouring elements.
const READS: f64 = 1700.0;
/// Parts that are tried.
const PARTS: [usize; 8] = [1, 2, 3, 4, 6, 8, 11, 16];
/// The fewest products worth a part of their own.
const LEAST_PART: usize = 64;

/// Workgroups for each multiprocessor that keep it busy.
const FULL: usize = 3;

/// What of a product's layout counts beside its extents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub(super) left_transposed: bool,
    pub(super) right_transposed: bool,
    /// Not all elements can be loaded and stored in fours.
    pub(super) single: bool,
    /// The kernel for few columns can make the product.
    pub(super) few_columns: bool,
    /// It may not be cut in parts.
    pub(super) whole: bool,
}

/// The cut for these extents, which depends on them, the layout and the device's limits alone.
pub(super) fn choose([rows, columns, depth]: [usize; 3], layout: Layout, limits: &Limits) -> Cut {
    let Layout { left_transposed, right_transposed, single, few_columns, whole } = layout;
    if rows <= MAX_ROWS && !left_transposed {
        // One workgroup for 8 or 32 columns; parts where those are few and long.
        let groups = columns.div_ceil(if right_transposed { 8 } else { 32 });
        return Cut::FewRows((512 / groups.max(1)).min(depth / 1024).clamp(1, 16));
    }
    let kind = if left_transposed { 2 } else { usize::from(right_transposed) };
    let mut best = (f64::INFINITY, Cut::Tiles(SMALL, 1));
    if few_columns {
        let rows_each = group_rows(rows);
        let time = few_columns_time([rows, columns, depth], rows_each, &limits.speeds);
        best = (time, Cut::FewColumns(rows_each));
    }
    for (candidate, rates) in CANDIDATES.iter().zip(&limits.speeds.tiles) {
        let rate = candidate.rates[kind] * thousandths(rates[kind]);
        let tile = candidate.tile;
        if tile.threads() as usize > limits.threads
            || tile.workgroup_bytes(true) as usize > limits.workgroup_bytes
        {
            continue;
        }
        for parts in PARTS {
            // Only whole sums of the slim tile were measured.
            if parts > 1 && (whole || depth / parts < LEAST_PART || tile == SLIM) {
                break;
            }
            let time = candidate.time([rows, columns, depth], parts, (rate, single), &limits.speeds);
            if time < best.0 {
                best = (time, Cut::Tiles(tile, parts));
            }
        }
    }
    best.1
}

/// On matrix units, where C is large, but there is hardly a workgroup for each multiprocessor.
pub const UNITS_LARGE: Tile = Tile::new(128, 128, 32, 8, 8);
/// On matrix units, where C is large: half as many threads make as many sums, so that a multiprocessor's registers
/// hold two workgroups, one of which multiplies while the other one loads, and each fragment that is read from the
/// workgroup's memory goes into more products.
pub const UNITS_BROAD: Tile = Tile::new(128, 128, 32, 8, 16);
/// On matrix units, where it fills more multiprocessors than the large one.
pub const UNITS_NARROW: Tile = Tile::new(128, 96, 64, 4, 12);
/// Likewise, for other rows.
pub const UNITS_FLAT: Tile = Tile::new(96, 128, 64, 12, 4);
/// Both where elements have to be loaded one at a time, for whose column sums the deeper ones leave no memory.
pub const UNITS_NARROW_SINGLE: Tile = Tile::new(128, 96, 32, 8, 12);
/// Likewise, for other rows.
pub const UNITS_FLAT_SINGLE: Tile = Tile::new(96, 128, 32, 12, 8);
/// Likewise, where both extents come in 96.
pub const UNITS_EVEN: Tile = Tile::new(96, 96, 32, 12, 6);
/// On matrix units, where the large one would leave multiprocessors idle.
pub const UNITS_SMALL: Tile = Tile::new(64, 64, 32, 8, 4);
/// On matrix units, for as few columns as an adapter's rank.
pub const UNITS_SLIM: Tile = Tile::new(64, 16, 32, 4, 4);
/// Likewise, for as few rows.
pub const UNITS_LOW: Tile = Tile::new(16, 64, 32, 4, 4);
/// The fewest products that are worth matrix units: with fewer, starting and waiting is what takes time.
const LEAST_UNITS: usize = 1 << 25;
/// The fewest products worth a part of their own there.
const LEAST_UNITS_PART: usize = 128;
/// The same where C is thin, and reading the other operand is what takes time.
const LEAST_THIN_PART: usize = 256;
/// Rows and columns from which on hardly any products each are worth it: storing them is what takes time.
const LARGE_SHALLOW: usize = 512;
/// From this summed extent on, parts of it by large tiles are faster than the whole of it by small ones.
const LONG_UNITS: usize = 1024;
/// How much more of the multiprocessors a tile must keep busy to be worth its less favourable shape.
const BUSIER: f64 = 0.1;

/// The cut of a mixed product on matrix units, where there are such and they suit the extents.
pub(super) fn choose_units(
    [rows, columns, depth]: [usize; 3],
    Layout { single, whole, .. }: Layout,
    limits: &Limits,
) -> Option<Cut> {
    let (full, least) = (UNITS_SMALL.rows as usize, UNITS_SLIM.columns as usize);
    let (side, is_shallow) = (rows.min(columns), depth < full);
    let is_thin = side < full;
    let suits = match (is_thin, is_shallow) {
        (false, false) => true,
        (true, _) => side >= least && depth >= LEAST_THIN_PART,
        (false, true) => depth >= least && side >= LARGE_SHALLOW,
    };
    if !limits.units || !suits || rows * columns * depth < LEAST_UNITS {
        return None;
    }
    let processors = limits.speeds.processors as usize;
    let groups = |tile: &Tile| rows.div_ceil(tile.rows as usize) * columns.div_ceil(tile.columns as usize);
    let fits = |tile: &Tile| {
        units::workgroup_bytes(tile, if single { 1 } else { 4 }) as usize <= limits.workgroup_bytes
            && tile.threads() as usize <= limits.threads
    };
    // As many parts as it takes to have this many workgroups.
    let least_part = if is_thin { LEAST_THIN_PART } else { LEAST_UNITS_PART };
    let in_parts = |tile: Tile, enough: usize| {
        let mut parts = 1;
        while !whole && groups(&tile) * parts < enough && depth / (parts * 2) >= least_part {
            parts *= 2;
        }
        (tile, parts)
    };
    if is_shallow {
        return fits(&UNITS_SMALL).then_some(Cut::Units(UNITS_SMALL, 1));
    }
    if is_thin {
        let tile = if columns <= rows { UNITS_SLIM } else { UNITS_LOW };
        let (tile, parts) = in_parts(tile, 2 * processors);
        return fits(&tile).then_some(Cut::Units(tile, parts));
    }
    let small = in_parts(UNITS_SMALL, 3 * processors / 4);
    let large = groups(&UNITS_LARGE);
    let mut cut = small;
    if depth >= LONG_UNITS || large >= processors / 2 {
        let enough = processors / 2;
        // The share of the multiprocessors' time that has a workgroup.
        let busy = |(tile, parts): (Tile, usize)| {
            let all = groups(&tile) * parts;
            all as f64 / all.next_multiple_of(processors) as f64
        };
        cut = in_parts(UNITS_LARGE, enough);
        let is_whole = |tile: &Tile| {
            rows.is_multiple_of(tile.rows as usize) || columns.is_multiple_of(tile.columns as usize)
        };
        let others = match single {
            true => [UNITS_NARROW_SINGLE, UNITS_FLAT_SINGLE, UNITS_EVEN],
            false => [UNITS_NARROW, UNITS_FLAT, UNITS_EVEN],
        };
        for tile in others.into_iter().filter(|tile| is_whole(tile) && fits(tile)) {
            let other = in_parts(tile, enough);
            if busy(other) > busy(cut) + BUSIER {
                cut = other;
            }
        }
        if cut.0 == UNITS_LARGE && large * cut.1 >= processors {
            cut.0 = UNITS_BROAD;
        }
    }
    [cut, small].into_iter().find(|(tile, _)| fits(tile)).map(|(tile, parts)| Cut::Units(tile, parts))
}

/// The cut of a product that runs beside others like it, as one dispatch: all of them together fill the device, and each
/// is cut in fewer parts.
pub(super) fn in_crowd(cut: Cut, [rows, columns]: [usize; 2], limits: &Limits) -> Cut {
    let (Cut::Tiles(tile, parts) | Cut::Units(tile, parts)) = cut else { return cut };
    let tiles = rows.div_ceil(tile.rows as usize) * columns.div_ceil(tile.columns as usize);
    let enough = FULL * limits.speeds.processors as usize;
    let fewer = (1..parts).find(|fewer| tiles * fewer * limits.crowd >= enough).unwrap_or(parts);
    match cut {
        Cut::Units(..) => Cut::Units(tile, fewer),
        _ => Cut::Tiles(tile, fewer),
    }
}

/// What so many thousandths are.
fn thousandths(number: u32) -> f64 {
    f64::from(number) / 1000.0
}

/// Microseconds that the kernel for few columns is expected to take.
fn few_columns_time([rows, columns, depth]: [usize; 3], rows_each: u32, speeds: &Speeds) -> f64 {
    let steps = depth.div_ceil(lanes(columns as u32) as usize);
    let rounds = steps / 4 + steps % 4;
    let groups = rows.div_ceil(rows_each as usize).div_ceil(speeds.processors as usize);
    let warps = threads(columns as u32).div_ceil(32) as usize;
    // Four for B's elements, and about three for those of a row of A.
    let reads = groups * warps * steps * (4 + 3 * rows_each as usize);
    let alone = FEW_COLUMNS_TREE + (rounds as f64 * FEW_COLUMNS_STEP).max(reads as f64 / READS);
    thousandths(speeds.dispatch) + alone * thousandths(speeds.latency)
}

impl Candidate {
    /// Microseconds that the product is expected to take, at so many TFLOP/s for as many multiprocessors as were
    /// measured, where elements may have to be loaded one at a time.
    fn time(
        &self,
        [rows, columns, depth]: [usize; 3],
        parts: usize,
        (rate, single): (f64, bool),
        speeds: &Speeds,
    ) -> f64 {
        let tile = &self.tile;
        let (high, wide) = (tile.rows as usize, tile.columns as usize);
        let (processors, latency) = (speeds.processors as usize, thousandths(speeds.latency));
        let steps = depth.div_ceil(parts).div_ceil(tile.step() as usize).max(1);
        let groups = rows.div_ceil(high) * columns.div_ceil(wide) * parts;
        // One workgroup's share of a multiprocessor that is full.
        let products = (high * wide * steps * tile.step() as usize) as f64;
        let work = 2.0 * products * MEASURED / (rate * 1e6);
        let waits = steps as f64 * self.step * latency;
        let busy = |resident: usize| (work * (resident as f64).max(1.0 / self.alone)).max(waits);
        // Workgroups that start together end together, so the next ones fill whole multiprocessors.
        let slots = processors * self.resident;
        let time = match groups / slots {
            0 => busy(groups.div_ceil(processors)),
            _ => busy(self.resident) * groups.div_ceil(slots) as f64,
        };
        let dispatch = thousandths(speeds.dispatch);
        let reduce = match parts {
            1 => 0.0,
            // Megabytes a second are bytes a microsecond.
            _ => dispatch + REDUCE + (2 * parts * rows * columns * 4) as f64 / f64::from(speeds.traffic),
        };
        dispatch + self.ends * latency + if single { time / self.single } else { time } + reduce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Limits =
        Limits { workgroup_bytes: 49152, threads: 1024, units: true, speeds: Speeds::SHIPPED, crowd: 1 };
    const SPARE: Limits =
        Limits { workgroup_bytes: 16384, threads: 256, units: false, speeds: Speeds::SHIPPED, crowd: 1 };

    const PLAIN: Layout = Layout {
        left_transposed: false,
        right_transposed: false,
        single: false,
        few_columns: false,
        whole: false,
    };
    const LEFT_TRANSPOSED: Layout = Layout { left_transposed: true, ..PLAIN };
    const RIGHT_TRANSPOSED: Layout = Layout { right_transposed: true, ..PLAIN };
    const SINGLE: Layout = Layout { single: true, ..PLAIN };
    const FEW_COLUMNS: Layout = Layout { few_columns: true, ..PLAIN };
    const FEW_SINGLE_COLUMNS: Layout = Layout { single: true, ..FEW_COLUMNS };

    #[test]
    fn the_cut_suits_the_extents() {
        assert_eq!(choose([4096; 3], PLAIN, &ROOMY), Cut::Tiles(HUGE, 1));
        assert_eq!(choose([4096; 3], RIGHT_TRANSPOSED, &ROOMY), Cut::Tiles(TALL, 1));
        assert_eq!(choose([1024; 3], PLAIN, &ROOMY), Cut::Tiles(LARGE, 1));
        assert_eq!(choose([64, 3136, 128], RIGHT_TRANSPOSED, &ROOMY), Cut::Tiles(SMALL, 1));
        assert_eq!(choose([512, 512, 64], LEFT_TRANSPOSED, &ROOMY), Cut::Tiles(SMALL, 1));
        assert_eq!(choose([1024; 3], LEFT_TRANSPOSED, &ROOMY), Cut::Tiles(DEEP, 1));
        assert_eq!(choose([1024, 384, 4096], LEFT_TRANSPOSED, &ROOMY), Cut::Tiles(LARGE, 8));
        assert_eq!(choose([4096, 384, 384], PLAIN, &ROOMY), Cut::Tiles(EVEN, 1));
        assert_eq!(choose([4096, 1024, 384], PLAIN, &ROOMY), Cut::Tiles(SQUARE, 1));
        assert_eq!(choose([4096, 1024, 384], RIGHT_TRANSPOSED, &ROOMY), Cut::Tiles(SQUARE, 1));
        assert_eq!(choose([384, 384, 4096], LEFT_TRANSPOSED, &ROOMY), Cut::Tiles(EVEN, 11));
        let whole = Layout { whole: true, ..RIGHT_TRANSPOSED };
        assert_eq!(choose([4096, 384, 1152], whole, &ROOMY), Cut::Tiles(EVEN, 1));
        assert_eq!(choose([64, 64, 4096], whole, &ROOMY), Cut::Tiles(TINY, 1));
        assert_eq!(choose([1024, 512, 784], PLAIN, &ROOMY), Cut::Tiles(MEDIUM, 1));
        assert_eq!(choose([64, 512, 512], PLAIN, &ROOMY), Cut::Tiles(TINY, 1));
        assert!(matches!(choose([64, 512, 784], PLAIN, &ROOMY), Cut::Tiles(SMALL, 4..)));
        assert_eq!(choose([64, 10, 512], FEW_SINGLE_COLUMNS, &ROOMY), Cut::FewColumns(1));
        assert_eq!(choose([1024, 10, 512], FEW_SINGLE_COLUMNS, &ROOMY), Cut::FewColumns(4));
        assert_eq!(choose([64, 8, 512], FEW_COLUMNS, &ROOMY), Cut::FewColumns(1));
        assert_eq!(choose([64, 10, 64], FEW_SINGLE_COLUMNS, &ROOMY), Cut::Tiles(TINY, 1));
        assert!(matches!(choose([64, 10, 1 << 14], FEW_SINGLE_COLUMNS, &ROOMY), Cut::Tiles(_, 16)));
        assert!(matches!(choose([64, 10, 512], SINGLE, &ROOMY), Cut::Tiles(TINY, 2..)));
        assert_eq!(choose([1001; 3], SINGLE, &ROOMY), Cut::Tiles(EVEN, 1));
        assert_eq!(choose([1, 512, 784], PLAIN, &ROOMY), Cut::FewRows(1));
        assert_eq!(choose([1, 4096, 4096], PLAIN, &ROOMY), Cut::FewRows(4));
    }

    #[test]
    fn matrix_units_are_for_large_products() {
        assert_eq!(choose_units([4096; 3], PLAIN, &ROOMY), Some(Cut::Units(UNITS_BROAD, 1)));
        assert_eq!(choose_units([1280, 1280, 1024], PLAIN, &ROOMY), Some(Cut::Units(UNITS_LARGE, 1)));
        assert_eq!(choose_units([1024, 512, 784], PLAIN, &ROOMY), Some(Cut::Units(UNITS_SMALL, 1)));
        assert_eq!(choose_units([4096, 384, 384], PLAIN, &ROOMY), Some(Cut::Units(UNITS_NARROW, 1)));
        assert_eq!(choose_units([4096, 1024, 384], PLAIN, &ROOMY), Some(Cut::Units(UNITS_BROAD, 1)));
        assert_eq!(choose_units([4096, 1536, 384], PLAIN, &ROOMY), Some(Cut::Units(UNITS_BROAD, 1)));
        assert_eq!(choose_units([384, 384, 4096], PLAIN, &ROOMY), Some(Cut::Units(UNITS_EVEN, 8)));
        assert_eq!(choose_units([4096, 384, 384], SINGLE, &ROOMY), Some(Cut::Units(UNITS_NARROW_SINGLE, 1)));
        assert_eq!(choose_units([384, 1024, 4096], PLAIN, &ROOMY), Some(Cut::Units(UNITS_FLAT, 4)));
        assert_eq!(choose_units([1024, 256, 768], PLAIN, &ROOMY), Some(Cut::Units(UNITS_SMALL, 2)));
        let whole = Layout { whole: true, ..PLAIN };
        assert_eq!(choose_units([1024, 256, 768], whole, &ROOMY), Some(Cut::Units(UNITS_SMALL, 1)));
        assert_eq!(choose_units([2048, 16, 2048], PLAIN, &ROOMY), Some(Cut::Units(UNITS_SLIM, 8)));
        assert_eq!(choose_units([16, 5632, 2048], PLAIN, &ROOMY), Some(Cut::Units(UNITS_LOW, 4)));
        assert_eq!(choose_units([2048, 2048, 16], PLAIN, &ROOMY), Some(Cut::Units(UNITS_SMALL, 1)));
        assert_eq!(choose_units([8192, 256, 16], PLAIN, &ROOMY), None);
        assert_eq!(choose_units([64, 512, 784], PLAIN, &ROOMY), None);
        assert_eq!(choose_units([4096, 10, 4096], PLAIN, &ROOMY), None);
        assert_eq!(choose_units([4096; 3], PLAIN, &SPARE), None);
    }

    /// A device of few multiprocessors is full with few tiles: sums are cut in fewer parts, and tiles are larger.
    #[test]
    fn small_devices_get_fewer_and_larger_tiles() {
        let few = Speeds { processors: 8, ..Speeds::SHIPPED };
        let small = Limits { speeds: few, ..ROOMY };
        for (extents, layout) in [([64, 512, 512], PLAIN), ([1024, 384, 4096], LEFT_TRANSPOSED)] {
            let cut = |limits| match choose(extents, layout, limits) {
                Cut::Tiles(tile, parts) => (tile.rows * tile.columns, parts),
                other => panic!("{other:?}"),
            };
            let ((area, parts), (large_area, large_parts)) = (cut(&small), cut(&ROOMY));
            assert!(area >= large_area && parts <= 4 && (area, parts) != (large_area, large_parts));
        }
        assert_eq!(choose_units([1024, 512, 784], PLAIN, &small), Some(Cut::Units(UNITS_BROAD, 1)));
        assert_eq!(choose_units([2048, 16, 2048], PLAIN, &small), Some(Cut::Units(UNITS_SLIM, 1)));
    }

    /// A tile that is slow somewhere is not chosen there.
    #[test]
    fn the_choice_goes_by_each_tiles_speed() {
        let mut speeds = Speeds::SHIPPED;
        let huge = CANDIDATES.iter().position(|candidate| candidate.tile == HUGE).unwrap();
        speeds.tiles[huge][0] = 300;
        let limits = Limits { speeds, ..ROOMY };
        assert!(matches!(choose([4096; 3], PLAIN, &limits), Cut::Tiles(tile, 1) if tile != HUGE));
        assert_eq!(choose([4096; 3], PLAIN, &ROOMY), Cut::Tiles(HUGE, 1));
    }

    #[test]
    fn products_beside_others_are_cut_in_fewer_parts() {
        let cut = |crowd| in_crowd(Cut::Tiles(LARGE, 8), [256, 1024], &Limits { crowd, ..ROOMY });
        // 32 tiles, and three workgroups for each of 132 multiprocessors.
        let parts = [(1, 8), (2, 7), (4, 4), (13, 1), (100, 1)];
        assert!(parts.iter().all(|(crowd, parts)| cut(*crowd) == Cut::Tiles(LARGE, *parts)));
        let whole = Cut::Units(UNITS_LARGE, 1);
        assert_eq!(in_crowd(whole, [4096; 2], &Limits { crowd: 9, ..ROOMY }), whole);
        let few = Cut::FewRows(4);
        assert_eq!(in_crowd(few, [1, 64], &Limits { crowd: 9, ..ROOMY }), few);
    }

    #[test]
    fn limits_are_kept() {
        for extents in [[1, 1, 1], [64, 512, 784], [1024; 3], [4096; 3], [8192, 8, 1 << 20]] {
            for right_transposed in [false, true] {
                let layout = Layout { right_transposed, ..LEFT_TRANSPOSED };
                let Cut::Tiles(tile, parts) = choose(extents, layout, &SPARE) else {
                    panic!("a transposed left operand needs tiles");
                };
                assert!(tile.threads() <= 256 && tile.workgroup_bytes(true) <= 16384, "{tile:?}");
                assert!((1..=16).contains(&parts));
            }
        }
    }
}
