//! From a cut to dispatches.

use super::column_sums::ColumnSums;
use super::cut::{Cut, Limits};
use super::few_columns::FewColumns;
use super::few_rows::FewRows;
use super::half::Rounding;
use super::left_form::LeftForm;
use super::matrix::{self, Finish, element, right_loader};
use super::plan::Problem;
use super::reduce;
use super::stream::{Stream, Weight, row_groups};
use super::streamed::Streamed;
use super::tile::{Along, Edges, Tile};
use super::tiled::{Hooks, Tiled};
use crate::shader::{Operand, Recorder, Shader, Share};
use crate::{Error, Result};

/// What a product reads and writes on the device.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// A.
    pub left: &'a Operand,
    /// B, plain or packed.
    pub right: &'a Operand,
    /// One number for each column of C, where the problem has a bias.
    pub bias: Option<&'a Operand>,
    /// What the derivative is taken from, where the problem has one; of C's extents.
    pub saved: Option<&'a Operand>,
    /// What is added to finished elements, where there is any; of C's extents.
    pub residual: Option<&'a Operand>,
    /// C.
    pub output: &'a Operand,
}

impl Problem<'_> {
    /// Records the product, cut like this, along with the sums of B's columns where they are wanted.
    ///
    /// # Errors
    /// [`Error::Internal`] where an operand is missing, and as [`Shader::groups`].
    pub fn record(
        &self,
        recorder: &mut Recorder<'_>,
        cut: Cut,
        sums: Option<ColumnSums>,
        operands: &Operands<'_>,
    ) -> Result<()> {
        let (parts, chunk) = self.parts(cut);
        let elements = parts * self.rows * self.columns;
        let partials = if parts > 1 { Some(recorder.scratch(elements)?) } else { None };
        let pass = Pass {
            problem: self,
            operands,
            partials: partials.as_ref(),
            parts,
            chunk,
            width: self.store_width(),
            subgroup: recorder.subgroup_threads,
            further: (&[], &[]),
        };
        // One pass makes them, the one that stores C.
        let (with_product, with_parts) = if parts > 1 { (None, sums) } else { (sums, None) };
        let (shader, groups) = match cut {
            Cut::FewRows(_) => pass.few_rows()?,
            Cut::Stream(shape, weight, _) => pass.stream(shape, weight, LeftForm::Plain)?,
            Cut::FewColumns(rows) => pass.few_columns(rows)?,
            Cut::Tiles(tile, _) => pass.tiles(tile, false, with_product)?,
            Cut::Units(tile, _) => pass.tiles(tile, true, with_product)?,
        };
        shader.groups(recorder, groups * parts + with_product.map_or(0, |sums| sums.groups))?;
        match pass.partials {
            Some(partials) => pass.reduce(recorder, partials, with_parts),
            None => Ok(()),
        }
    }
}

/// The sum of several products `A B`, each A with as many rows and each B with as many columns, as one product whose
/// summed extent is that of all of them.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// The first one, with what becomes of the sum: A lies row after row, and B is stored transposed as f32.
    pub first: Problem<'a>,
    /// The summed extents, that of the first among them.
    pub extents: &'a [usize],
    /// A and B of each.
    pub factors: &'a [[&'a Operand; 2]],
}

impl Joined<'_> {
    /// Records them with what is added to their sum; says whether they can be made so.
    ///
    /// # Errors
    /// As [`Problem::record`].
    pub fn record(
        &self,
        recorder: &mut Recorder<'_>,
        limits: &Limits,
        residual: Option<&Operand>,
        output: &Operand,
    ) -> Result<bool> {
        let ([left, right], further) = match self.factors {
            [first, further @ ..] if !further.is_empty() => (*first, further),
            _ => return Ok(false),
        };
        let problem = Problem { depth: self.extents.iter().sum(), ..self.first };
        let (cut, units) = match problem.choose_whole(limits) {
            cut @ Cut::Tiles(_, 1) => (cut, false),
            cut @ Cut::Units(_, 1) => (cut, true),
            _ => return Ok(false),
        };
        let (Cut::Tiles(tile, _) | Cut::Units(tile, _)) = cut else { return Ok(false) };
        if !self.extents.iter().all(|extent| extent.is_multiple_of(tile.step() as usize)) {
            return Ok(false);
        }
        let extents: Vec<u32> = self.extents.iter().map(|extent| *extent as u32).collect();
        let operands = Operands { left, right, bias: None, saved: None, residual, output };
        let pass = Pass {
            problem: &problem,
            operands: &operands,
            partials: None,
            parts: 1,
            chunk: problem.depth,
            width: problem.store_width(),
            subgroup: recorder.subgroup_threads,
            further: (further, &extents),
        };
        let (shader, groups) = pass.tiles(tile, units, None)?;
        shader.groups(recorder, groups)?;
        Ok(true)
    }
}

/// One of several products of the same A with weights that are read as they lie, for which
/// [`Together`](super::Together) has found the shape.
pub(super) fn streamed(
    problem: &Problem<'_>,
    operands: &Operands<'_>,
    (shape, weight): (Stream, Weight),
    form: LeftForm<'_>,
    subgroup: usize,
) -> Result<Share> {
    let (parts, chunk) = (1, problem.depth);
    let (width, further) = (problem.store_width(), (&[][..], &[][..]));
    Pass { problem, operands, partials: None, parts, chunk, width, subgroup, further }
        .stream(shape, weight, form)
}

/// What the kernels of a product have in common. Those that make it come with the workgroups of one part.
struct Pass<'a> {
    problem: &'a Problem<'a>,
    operands: &'a Operands<'a>,
    /// Sums over the parts of the summed extent, where those are several.
    partials: Option<&'a Operand>,
    parts: usize,
    chunk: usize,
    /// Elements of C stored together, where threads have so many side by side.
    width: u32,
    /// Threads of every subgroup that kernels may count on, 0 for none.
    subgroup: usize,
    /// The other products that are part of the same sum, and the summed extents of all of them.
    further: (&'a [[&'a Operand; 2]], &'a [u32]),
}

impl Pass<'_> {
    /// What is multiplied, for who looks where the time goes: rows and columns of C, the summed extent, which
    /// operands are stored transposed, and the parts.
    fn extents(&self) -> String {
        let Problem { rows, columns, depth, left, right, .. } = self.problem;
        let turned = |matrix: &matrix::Matrix, name| if matrix.transposed { name } else { "" };
        let mut parts = if self.parts > 1 { format!(" in {} parts", self.parts) } else { String::new() };
        if !self.further.0.is_empty() {
            parts = format!(" of {} products", self.further.1.len());
        }
        format!("{rows}x{columns}, {depth}{}{}{parts}", turned(left, " A'"), turned(right, " B'"))
    }

    fn shader(&self, label: &str) -> Shader {
        Shader::new(label, "")
            .number("rows", self.problem.rows)
            .number("columns", self.problem.columns)
            .number("depth", self.problem.depth)
            // The summed extent is cut into so many parts of so many products.
            .number("parts", self.parts)
            .number("chunk", self.chunk)
            .unchecked()
    }

    /// `load_a`.
    fn left(&self, shader: Shader, width: u32) -> Shader {
        matrix::left(shader, self.problem.left, width, self.operands.left)
    }

    /// `load_b`.
    fn right(&self, shader: Shader, width: u32) -> Shader {
        matrix::right(shader, self.problem.right, self.problem.storage, width, self.operands.right)
    }

    /// `store` to where the pass that makes the product stores.
    fn store_sums(&self, shader: Shader, width: u32) -> Result<Shader> {
        match self.partials {
            Some(partials) => Ok(matrix::store_partials(shader, width, partials)),
            None => self.store(shader, width),
        }
    }

    /// `store` to C, with what comes before.
    fn store(&self, mut shader: Shader, width: u32) -> Result<Shader> {
        let (problem, ty) = (self.problem, element(width));
        let given = |operand: Option<&Operand>, what: &str| {
            operand.cloned().ok_or_else(|| Error::Internal(format!("a product without its {what}")))
        };
        let each = |call: &dyn Fn(&str) -> String| match width {
            4 => format!("vec4<f32>({})", ["x", "y", "z", "w"].map(|c| call(&format!(".{c}"))).join(", ")),
            _ => call(""),
        };
        let before = if problem.accumulate { " + output[at]" } else { "" };
        let mut bias = String::new();
        if problem.bias {
            shader = shader.read("bias", ty, given(self.operands.bias, "bias")?);
            bias = format!(" + bias[column / {width}u]");
        }
        let mut residual = "";
        if let Some(operand) = self.operands.residual {
            shader = shader.read("residual", ty, operand.clone());
            residual = " + residual[at]";
        }
        let (functions, finish) = match problem.finish {
            Finish::None => ("", format!("    output[at] = biased{residual};\n")),
            Finish::Activate(text) => {
                let value = each(&|c| format!("activate(biased{c})"));
                (text, format!("    output[at] = {value}{residual};\n"))
            }
            Finish::Derivative(text) => {
                shader = shader.read("saved", ty, given(self.operands.saved, "derivative's argument")?);
                let factor = each(&|c| format!("derivative(before{c})"));
                let value = format!("biased * {factor}{residual}");
                (text, format!("    let before = saved[at];\n    output[at] = {value};\n"))
            }
        };
        Ok(shader
            .write("output", ty, self.operands.output.clone())
            .number("output_stride", problem.output.stride)
            .number("output_offset", problem.output.offset)
            .append(&format!(
                "{functions}
fn store(row: u32, column: u32, value: {ty}) {{
    let at = (constants.output_offset + row * constants.output_stride + column) / {width}u;
    let sum = value{before};
    let biased = sum{bias};
{finish}}}
"
            )))
    }

    fn few_rows(&self) -> Result<(Shader, usize)> {
        let problem = self.problem;
        let right = right_loader(problem.right, problem.storage, problem.depth, problem.columns);
        let (along, width, left) = match right.along {
            // Both run along the depth.
            Along::Depth => {
                let width = if problem.left.in_fours(problem.depth) { right.width } else { 1 };
                (Along::Depth, width, width)
            }
            Along::Across => (Along::Across, right.width.min(self.width), 1),
        };
        let shader = self.right(self.left(self.shader("product.few_rows"), left), width);
        let shader = self.store_sums(shader, if along == Along::Across { width } else { 1 })?;
        let kernel = FewRows {
            rows: problem.rows as u32,
            along,
            width,
            parts: self.partials.is_some(),
            rounding: Rounding::of(problem.mixed),
        };
        Ok((kernel.add_to(shader), problem.columns.div_ceil(kernel.columns())))
    }

    fn stream(&self, shape: Stream, weight: Weight, form: LeftForm<'_>) -> Result<(Shader, usize)> {
        let problem = self.problem;
        let (groups, rows) = row_groups(problem.rows);
        let kernel = Streamed {
            shape,
            weight,
            rows: rows as u32,
            row_groups: groups as u32,
            depth: problem.depth,
            left: problem.left,
            parts: self.partials.is_some(),
            form,
            subgroup: self.subgroup as u32,
        };
        let shader = kernel.declare(self.shader("product.stream"), self.operands.left, self.operands.right);
        let shader = self.store_sums(shader, shape.store_width())?;
        Ok((kernel.add_to(shader), groups * problem.columns.div_ceil(shape.workgroup_columns())))
    }

    fn few_columns(&self, rows: u32) -> Result<(Shader, usize)> {
        let problem = self.problem;
        let shader = self.left(self.shader("product.few_columns"), 1);
        let shader = matrix::right_in_fours(shader, problem.right, problem.storage, self.operands.right);
        let shader = self.store(shader, 1)?;
        let (columns, rounding) = (problem.columns as u32, Rounding::of(problem.mixed));
        let kernel = FewColumns { columns, rows, rounding };
        Ok((kernel.add_to(shader), problem.rows.div_ceil(rows as usize)))
    }

    fn tiles(&self, tile: Tile, units: bool, sums: Option<ColumnSums>) -> Result<(Shader, usize)> {
        let problem = self.problem;
        let (left, right) = problem.loaders();
        let kind = if units { "units" } else { "tiles" };
        let label =
            format!("product.{kind} {} by {}x{}x{}", self.extents(), tile.rows, tile.columns, tile.step());
        let mut shader = self.right(self.left(self.shader(&label), left.width), right.width);
        let (further, extents) = self.further;
        for (number, (factors, extent)) in further.iter().zip(extents.iter().skip(1)).enumerate() {
            shader = matrix::segment(shader, number + 1, *extent, [left.width, right.width], *factors);
        }
        let mut shader = self.store_sums(shader, self.width)?;
        let mut hooks = Hooks { segments: extents, ..Hooks::default() };
        if let Some(sums) = sums {
            shader = sums.add_to(shader, problem.accumulate);
            hooks.beyond = SUMS_BEYOND;
        }
        let kernel = Tiled {
            tile,
            left,
            right,
            store_width: self.width,
            edges: Edges::of(&tile, problem.rows, problem.columns, problem.depth),
            extents: ["constants.rows", "constants.columns", "constants.depth"],
            parts: self.partials.is_some().then_some(["constants.parts", "constants.chunk"]),
            hooks,
            rounding: Rounding::of(problem.mixed),
            units,
        };
        let tiles =
            problem.rows.div_ceil(tile.rows as usize) * problem.columns.div_ceil(tile.columns as usize);
        Ok((kernel.add_to(shader), tiles))
    }

    /// Records the second pass, along with the sums of B's columns where they are wanted.
    fn reduce(
        &self,
        recorder: &mut Recorder<'_>,
        partials: &Operand,
        sums: Option<ColumnSums>,
    ) -> Result<()> {
        let (problem, width) = (self.problem, self.width);
        let mut shader = self.shader(&format!("product.reduce {}", self.extents())).read(
            "partials",
            element(width),
            partials.clone(),
        );
        let (mut threads, mut extra, mut beyond) = (reduce::THREADS, 0, "");
        if let Some(sums) = sums {
            (threads, extra, beyond) = (sums.threads, sums.groups, SUMS_BEYOND);
            shader = self.right(shader, width);
            shader = shader.append(&format!("var<workgroup> memory: array<vec4<f32>, {threads}>;\n"));
            shader = sums.add_to(shader, problem.accumulate);
        }
        let groups = reduce::groups(problem.rows * problem.columns, width, threads) + extra;
        let shader = self.store(shader, width)?.threads(threads);
        shader.append(&reduce::main(width, threads, beyond)).groups(recorder, groups)
    }
}

/// What workgroups do that have no share in the product.
const SUMS_BEYOND: &str = "column_sums(extra, thread);";
