//! Shapes of tiles, and how they are filled.

/// What a workgroup makes and how its threads share it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows of C made by one workgroup.
    pub rows: u32,
    /// Columns of C made by one workgroup.
    pub columns: u32,
    /// Products that a thread adds to each of its sums between two barriers.
    pub depth: u32,
    /// Rows of C made by one thread, a multiple of 4.
    pub thread_rows: u32,
    /// Columns of C made by one thread, a multiple of 4.
    pub thread_columns: u32,
    /// Sets of threads that make the same tile, each from its own part of every
    /// `depth * slices` products; their sums are added in order at the end. More than one keeps
    /// a multiprocessor busy where C has few tiles.
    pub slices: u32,
    /// Whether the next tiles are fetched into registers while the present ones are used.
    pub prefetch: bool,
}

impl Tile {
    /// A tile without slices that prefetches.
    pub const fn new(rows: u32, columns: u32, depth: u32, thread_rows: u32, thread_columns: u32) -> Self {
        Self { rows, columns, depth, thread_rows, thread_columns, slices: 1, prefetch: true }
    }

    /// The same with this many slices.
    pub const fn sliced(self, slices: u32) -> Self {
        Self { slices, ..self }
    }

    /// Threads of a workgroup.
    pub const fn threads(&self) -> u32 {
        self.slice_threads() * self.slices
    }

    /// Products between two barriers, over all slices.
    pub const fn step(&self) -> u32 {
        self.depth * self.slices
    }

    /// Bytes of workgroup memory.
    pub fn workgroup_bytes(&self, padded: bool) -> u32 {
        16 * self.memory(if padded { 1 } else { 0 })
    }

    pub(super) const fn slice_threads(&self) -> u32 {
        (self.rows / self.thread_rows) * (self.columns / self.thread_columns)
    }

    /// vec4s of workgroup memory, with this many more in each row of the left tile.
    pub(super) fn memory(&self, padding: u32) -> u32 {
        let tiles = self.step() * (self.rows / 4 + padding + self.columns / 4 + padding);
        let sums = if self.slices > 1 { self.slices * self.rows * self.columns / 4 } else { 0 };
        tiles.max(sums)
    }
}

/// Along what elements that are loaded together lie side by side in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    /// The summed extent: a row of A, or a column of B.
    Depth,
    /// The other one: a column of A, or a row of B.
    Across,
}

/// How an operand is loaded into its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loader {
    /// Which elements neighbouring threads load, and which ones a vec4 holds.
    pub along: Along,
    /// Elements loaded together: 1, or 4 where that extent is a multiple of 4.
    pub width: u32,
}

/// Which extents may be other than multiples of the tile, and so have to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edges {
    /// Rows of C.
    pub rows: bool,
    /// Columns of C.
    pub columns: bool,
    /// The summed extent, against [`Tile::step`].
    pub depth: bool,
}

impl Edges {
    /// Any extents.
    pub const ALL: Self = Self { rows: true, columns: true, depth: true };

    /// What these extents need with this tile.
    pub fn of(tile: &Tile, rows: usize, columns: usize, depth: usize) -> Self {
        Self {
            rows: !rows.is_multiple_of(tile.rows as usize),
            columns: !columns.is_multiple_of(tile.columns as usize),
            depth: !depth.is_multiple_of(tile.step() as usize),
        }
    }
}
