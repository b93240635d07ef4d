//! From extents to kernels.

use super::choose::{choose, choose_units};
use super::column_sums::ColumnSums;
use super::few_columns::{FewColumns, MAX_COLUMNS};
use super::few_rows::{self, FewRows};
use super::half::Rounding;
use super::matrix::{Declarations, Finish, Matrix, Role, Storage, loader, right_loader};
use super::reduce;
use super::stream::{self, Stream, Weight};
use super::streamed::Streamed;
use super::tile::{Along, Edges, Loader, Tile};
use super::tiled::{Hooks, Tiled};

/// `C (+)= finish(A B + bias)`.
///
/// When C is accumulated into, what is there counts as part of the sum: it comes before the
/// bias and the finish.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// Rows of A and C.
    pub rows: usize,
    /// Columns of B and C.
    pub columns: usize,
    /// Columns of A and rows of B.
    pub depth: usize,
    /// A.
    pub left: Matrix,
    /// B.
    pub right: Matrix,
    /// What B's elements are stored as.
    pub storage: Storage,
    /// C, never transposed.
    pub output: Matrix,
    /// Whether C is added to.
    pub accumulate: bool,
    /// Whether one number a column is added.
    pub bias: bool,
    /// What is done to finished elements.
    pub finish: Finish<'a>,
    /// Whether the elements of A and B are rounded to binary16 before they are multiplied.
    pub mixed: bool,
}

/// What a device offers the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of workgroup memory.
    pub workgroup_bytes: usize,
    /// Threads of a workgroup.
    pub threads: usize,
    /// Whether it multiplies f16 matrices with f32 sums, 16 x 16 at a time.
    pub units: bool,
}

/// The dispatches of a product, one after the other.
#[derive(Clone, Debug)]
pub struct Plan {
    /// f32 elements of temporary memory, for [`Role::Partials`]; 0 where there are none.
    pub partials: usize,
    /// The dispatches.
    pub stages: Vec<Stage>,
}

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it is, for debuggers.
    pub label: &'static str,
    /// WGSL, without the prelude that declares `group_index`.
    pub source: String,
    /// Operands in the order of their bindings.
    pub operands: Vec<Bound>,
    /// What follows `step` in the constants.
    pub constants: Vec<u32>,
    /// Workgroups.
    pub groups: usize,
}

/// An operand of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Which one.
    pub role: Role,
    /// Whether it is bound for writing.
    pub written: bool,
}

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The kernel for few rows, with the depth cut into so many parts.
    FewRows(usize),
    /// The kernel that reads a weight of few rows as it lies, likewise.
    Stream(Stream, Weight, usize),
    /// The kernel for few columns, with so many rows a workgroup.
    FewColumns(u32),
    /// Tiles, with the depth cut into so many parts.
    Tiles(Tile, usize),
    /// Tiles made on matrix units, likewise.
    Units(Tile, usize),
}

impl Problem<'_> {
    /// Plans the product with the cut that suits the extents.
    pub fn plan(&self, limits: &Limits) -> Plan {
        self.plan_with(self.choose(limits))
    }

    /// The cut that suits the extents.
    pub fn choose(&self, limits: &Limits) -> Cut {
        let (left, right) = self.loaders();
        let single = left.width == 1 || right.width == 1 || !self.output.in_fours(self.columns);
        let extents = [self.rows, self.columns, self.depth];
        if let Some(cut) = choose_units(extents, limits).filter(|_| self.mixed) {
            return cut;
        }
        if let Some(cut) = self.choose_stream(limits) {
            return cut;
        }
        choose(
            extents,
            [self.left.transposed, self.right.transposed],
            single,
            self.few_columns_will_do(limits),
            limits,
        )
    }

    /// The weight, where the kernel that reads it as it lies can.
    fn streamed(&self) -> Option<Weight> {
        if !(1..=stream::MAX_ROWS).contains(&self.rows) || self.left.transposed || self.mixed {
            return None;
        }
        let weight = Weight::new(self.storage, self.right, self.columns, self.depth)?;
        // It stores columns in fours where it makes them so.
        let stores = weight.along() == Along::Depth || self.output.in_fours(self.columns);
        stores.then_some(weight)
    }

    /// The cut of a product of few rows with a packed weight.
    fn choose_stream(&self, limits: &Limits) -> Option<Cut> {
        if self.storage == Storage::Float32 || self.columns * self.depth < LEAST_STREAM {
            return None;
        }
        self.stream_cut(limits)
    }

    /// A cut that reads the weight as it lies, with this shape.
    pub fn stream_with(&self, shape: Stream, parts: usize, limits: &Limits) -> Option<Cut> {
        let weight = self.streamed()?;
        let fits = shape.threads as usize <= limits.threads && weight.takes(&shape, self.columns, self.depth);
        fits.then_some(Cut::Stream(shape, weight, parts))
    }

    /// The cut that reads the weight as it lies and suits the extents.
    pub(crate) fn stream_cut(&self, limits: &Limits) -> Option<Cut> {
        if self.depth == 0 {
            return None;
        }
        let weight = self.streamed()?;
        let shape = weight.shape([self.rows, self.columns, self.depth], limits.threads);
        let groups = self.columns.div_ceil(shape.workgroup_columns());
        let parts = (128 / groups.max(1)).min(self.depth / 1024).clamp(1, 16);
        Some(Cut::Stream(shape, weight, parts))
    }

    /// Whether the kernel for few columns can make it.
    fn few_columns_will_do(&self, limits: &Limits) -> bool {
        (1..=MAX_COLUMNS).contains(&self.columns)
            && self.depth > 0
            && !self.left.transposed
            && !self.right.transposed
            && self.right.stride == self.columns
            && self.right.offset.is_multiple_of(4)
            && limits.threads >= 256
    }

    /// How tiles of A and of B are loaded.
    fn loaders(&self) -> (Loader, Loader) {
        (
            loader(self.left, !self.left.transposed, self.depth, self.rows),
            right_loader(self.right, self.storage, self.depth, self.columns),
        )
    }

    /// Plans the product along with the sums of B's columns, which go to C's buffer from element
    /// `at` on, a multiple of 4, and are added to what is there where C is. `None` where the sums
    /// are better made by themselves.
    pub fn plan_with_column_sums(&self, at: usize, limits: &Limits) -> Option<Plan> {
        let cut = self.choose(limits);
        let (Cut::Tiles(tile, _) | Cut::Units(tile, _)) = cut else { return None };
        let (parts, chunk) = self.parts(cut);
        let right = self.loaders().1;
        let width = if self.output.in_fours(self.columns) { 4 } else { 1 };
        if self.right.transposed || right.width != width {
            return None;
        }
        let (threads, steps) = match parts {
            1 => (tile.threads() as usize, chunk / tile.step() as usize),
            // The second pass makes them: the first need not wait for what else is done to C's buffer.
            _ if self.depth > 1024 && limits.threads >= 256 => (256, 0),
            _ => (reduce::THREADS, 0),
        };
        let sums = ColumnSums::new(self.depth, self.columns, width, threads);
        sums.are_hidden(self.depth, steps).then(|| self.plan_stages(cut, Some((sums, at))))
    }

    /// Plans the product with this cut.
    pub fn plan_with(&self, cut: Cut) -> Plan {
        self.plan_stages(cut, None)
    }

    fn plan_stages(&self, cut: Cut, sums: Option<(ColumnSums, usize)>) -> Plan {
        let fours = self.output.in_fours(self.columns);
        let width = if fours { 4 } else { 1 };
        let (parts, chunk) = self.parts(cut);
        let mut declarations = Declarations::new();
        // One pass makes them, the one that stores C.
        let (with_product, with_parts) = if parts > 1 { (None, sums) } else { (sums, None) };
        let (label, groups, written, source) = match cut {
            Cut::FewRows(_) => self.few_rows(&mut declarations, width, parts),
            Cut::Stream(shape, weight, _) => self.stream(&mut declarations, (shape, weight), parts),
            Cut::FewColumns(rows) => self.few_columns(&mut declarations, rows),
            Cut::Tiles(tile, _) => self.tiles(&mut declarations, (tile, false), width, parts, with_product),
            Cut::Units(tile, _) => self.tiles(&mut declarations, (tile, true), width, parts, with_product),
        };
        let constants = vec![
            self.rows as u32,
            self.columns as u32,
            self.depth as u32,
            parts as u32,
            chunk as u32,
            self.left.stride as u32,
            self.left.offset as u32,
            self.right.stride as u32,
            self.right.offset as u32,
            self.output.stride as u32,
            self.output.offset as u32,
            sums.map_or(0, |(_, at)| at as u32),
        ];
        let bound = |roles: &[Role], written: Role| {
            roles.iter().map(|role| Bound { role: *role, written: *role == written }).collect()
        };
        let operands = bound(&declarations.roles, written);
        let mut stages = vec![Stage { label, source, operands, constants: constants.clone(), groups }];
        let elements = self.rows * self.columns;
        if parts > 1 {
            let mut declarations = Declarations::new();
            declarations.partials(width);
            let mut threads = reduce::THREADS;
            let (mut extra, mut beyond) = (0, "");
            if let Some((sums, _)) = with_parts {
                (threads, extra, beyond) = (sums.threads, sums.groups, SUMS_BEYOND);
                declarations.right(self.right, self.storage, width);
                declarations.text += &format!("var<workgroup> memory: array<vec4<f32>, {threads}>;\n");
                declarations.text += &sums.source(self.accumulate);
            }
            declarations.store(width, self.accumulate, self.bias, self.finish);
            stages.push(Stage {
                label: "product.reduce",
                source: reduce::source(&declarations.text, width, threads, beyond),
                operands: bound(&declarations.roles, Role::Output),
                constants,
                groups: reduce::groups(elements, width, threads) + extra,
            });
        }
        Plan { partials: if parts > 1 { parts * elements } else { 0 }, stages }
    }

    /// Parts of the depth that are not empty, and the products in each: a multiple of what the
    /// kernel steps by, so that parts depend on extents alone.
    fn parts(&self, cut: Cut) -> (usize, usize) {
        let (parts, step) = match cut {
            Cut::FewRows(parts) => (parts, 128),
            Cut::Stream(_, _, parts) => (parts, Weight::STEP),
            Cut::FewColumns(_) => (1, 1),
            Cut::Tiles(tile, parts) | Cut::Units(tile, parts) => (parts, tile.step() as usize),
        };
        let chunk = self.depth.div_ceil(parts.max(1)).next_multiple_of(step).max(step);
        (self.depth.div_ceil(chunk).max(1), chunk)
    }

    fn declare_store(&self, declarations: &mut Declarations, width: u32, parts: usize) -> Role {
        if parts > 1 {
            declarations.store_partials(width);
            Role::Partials
        } else {
            declarations.store(width, self.accumulate, self.bias, self.finish);
            Role::Output
        }
    }

    fn few_rows(
        &self,
        declarations: &mut Declarations,
        width: u32,
        parts: usize,
    ) -> (&'static str, usize, Role, String) {
        let right = right_loader(self.right, self.storage, self.depth, self.columns);
        let (along, width, left) = match right.along {
            // Both run along the depth.
            Along::Depth => {
                let width = if self.left.in_fours(self.depth) { right.width } else { 1 };
                (Along::Depth, width, width)
            }
            Along::Across => (Along::Across, right.width.min(width), 1),
        };
        let store = if along == Along::Across { width } else { 1 };
        declarations.left(self.left, left);
        declarations.right(self.right, self.storage, width);
        let written = self.declare_store(declarations, store, parts);
        let text = declarations.text.clone();
        let kernel = FewRows {
            rows: self.rows as u32,
            along,
            width,
            parts: parts > 1,
            rounding: Rounding::of(self.mixed),
            declarations: &text,
        };
        let groups = self.columns.div_ceil(kernel.columns()) * parts;
        ("product.few_rows", groups, written, kernel.source())
    }

    fn stream(
        &self,
        declarations: &mut Declarations,
        (shape, weight): (Stream, Weight),
        parts: usize,
    ) -> (&'static str, usize, Role, String) {
        let kernel = Streamed {
            shape,
            weight,
            rows: self.rows as u32,
            depth: self.depth,
            left: self.left,
            parts: parts > 1,
        };
        kernel.declare(declarations);
        let written = self.declare_store(declarations, shape.store_width(), parts);
        let groups = self.columns.div_ceil(shape.workgroup_columns()) * parts;
        ("product.stream", groups, written, kernel.source(&declarations.text))
    }

    fn few_columns(&self, declarations: &mut Declarations, rows: u32) -> (&'static str, usize, Role, String) {
        declarations.left(self.left, 1);
        declarations.right_in_fours(self.storage);
        let written = self.declare_store(declarations, 1, 1);
        let (columns, rounding) = (self.columns as u32, Rounding::of(self.mixed));
        let kernel = FewColumns { columns, rows, rounding, declarations: &declarations.text };
        ("product.few_columns", self.rows.div_ceil(rows as usize), written, kernel.source())
    }

    fn tiles(
        &self,
        declarations: &mut Declarations,
        (tile, units): (Tile, bool),
        width: u32,
        parts: usize,
        sums: Option<(ColumnSums, usize)>,
    ) -> (&'static str, usize, Role, String) {
        let (left, right) = self.loaders();
        declarations.left(self.left, left.width);
        declarations.right(self.right, self.storage, right.width);
        let written = self.declare_store(declarations, width, parts);
        let tiles = self.rows.div_ceil(tile.rows as usize) * self.columns.div_ceil(tile.columns as usize);
        let (mut extra, mut hooks) = (0, Hooks::default());
        if let Some((sums, _)) = sums {
            (extra, hooks.beyond) = (sums.groups, SUMS_BEYOND);
            declarations.text += &sums.source(self.accumulate);
        }
        let kernel = Tiled {
            tile,
            left,
            right,
            store_width: width,
            edges: Edges::of(&tile, self.rows, self.columns, self.depth),
            extents: ["constants.rows", "constants.columns", "constants.depth"],
            parts: (parts > 1).then_some(["constants.parts", "constants.chunk"]),
            hooks,
            rounding: Rounding::of(self.mixed),
            units,
            declarations: &declarations.text,
        };
        let label = if units { "product.units" } else { "product.tiles" };
        (label, tiles * parts + extra, written, kernel.source())
    }
}

/// The fewest weights that are worth reading word by word: a product of fewer takes what a dispatch takes, and
/// the kernel's text is long to compile.
const LEAST_STREAM: usize = 1 << 11;

/// What workgroups do that have no share in the product.
const SUMS_BEYOND: &str = "column_sums(extra, thread);";

/// Whether the kernel for few rows can make it.
pub(super) fn few_rows_will_do(rows: usize, left_transposed: bool) -> bool {
    rows <= few_rows::MAX_ROWS && !left_transposed
}
