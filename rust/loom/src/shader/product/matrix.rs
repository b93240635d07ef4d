//! Matrices in storage buffers as operands of the product kernels: their bindings and hooks.

use super::tile::{Along, Loader};
use crate::dtype::{BlockWords, DType, Granularity, Packing};
use std::fmt::Write;

/// What a kernel's operand is to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A.
    Left,
    /// B, plain or packed.
    Right,
    /// One scale for each column of a packed weight.
    Scales,
    /// One number for each column of C.
    Bias,
    /// What the derivative is computed from, laid out as C.
    Saved,
    /// Sums over parts of the summed extent, (parts, rows, columns).
    Partials,
    /// C.
    Output,
}

/// How a matrix lies in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Whether the buffer holds the transpose.
    pub transposed: bool,
    /// Elements from one stored row to the next.
    pub stride: usize,
    /// The first element.
    pub offset: usize,
}

impl Matrix {
    /// As stored, from the start of the buffer.
    pub fn plain(stride: usize) -> Self {
        Self { transposed: false, stride, offset: 0 }
    }

    /// The transpose of what is stored.
    pub fn transposed(stride: usize) -> Self {
        Self { transposed: true, stride, offset: 0 }
    }

    /// Whether groups of four along a stored row of this many elements start at multiples of 16 bytes.
    pub fn in_fours(&self, run: usize) -> bool {
        run.is_multiple_of(4) && self.stride.is_multiple_of(4) && self.offset.is_multiple_of(4)
    }
}

/// What elements of B are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// One a word.
    Float32,
    /// Two a word.
    Float16,
    /// Two a word.
    BFloat16,
    /// Four a word, with a scale for each stored column.
    Int8,
    /// In any other way: element by element, by its number in the whole parameter.
    Packed(Packing),
}

impl Storage {
    /// How parameters that are packed so are stored on a device.
    pub fn of(packing: Option<Packing>) -> Self {
        let Some(packing) = packing else { return Self::Float32 };
        match (packing.dtype, packing.granularity) {
            (DType::Float32, _) => Self::Float32,
            (DType::Float16, _) => Self::Float16,
            (DType::BFloat16, _) => Self::BFloat16,
            (DType::Int8, Granularity::Channel) => Self::Int8,
            _ => Self::Packed(packing),
        }
    }

    /// The WGSL type of an element of the array of scales, where there are such; of four side by side
    /// where kernels read four columns at once.
    pub fn scale(self, width: u32) -> Option<&'static str> {
        match self {
            Self::Float32 | Self::Float16 | Self::BFloat16 => None,
            Self::Int8 => Some(element(width)),
            Self::Packed(packing) => (packing.group_words() > 0).then_some("u32"),
        }
    }

    /// How its blocks are decoded, of a block format, by functions of this name.
    pub(super) fn blocks(self, name: &str) -> Option<(Packing, BlockWords)> {
        match self {
            Self::Packed(packing) => packing.wgsl_block(name).map(|block| (packing, block)),
            _ => None,
        }
    }

    /// The WGSL functions that [`element`](Storage::element) calls, for arrays of these names.
    pub fn functions(self, buffer: &str, scales: &str) -> String {
        match self {
            Self::Packed(packing) => packing.wgsl("loom_weight", buffer, scales),
            _ => String::new(),
        }
    }

    /// The WGSL expression of element `at`, or of the four from there on, in a buffer of words
    /// (of `f32` or `vec4<f32>` where they are plain); the scales of `Int8` are left to the caller.
    pub fn element(self, buffer: &str, width: u32) -> String {
        match (self, width) {
            (Self::Float32, _) => format!("{buffer}[at / {width}u]"),
            (Self::Float16, 4) => {
                format!(
                    "vec4<f32>(unpack2x16float({buffer}[at / 2u]), unpack2x16float({buffer}[at / 2u + 1u]))"
                )
            }
            (Self::Float16, _) => format!("unpack2x16float({buffer}[at / 2u])[at % 2u]"),
            (Self::BFloat16, 4) => format!(
                "bitcast<vec4<f32>>(vec4<u32>({buffer}[at / 2u] << 16u, {buffer}[at / 2u] & 0xffff0000u, \
                 {buffer}[at / 2u + 1u] << 16u, {buffer}[at / 2u + 1u] & 0xffff0000u))"
            ),
            (Self::BFloat16, _) => {
                format!("bitcast<f32>(({buffer}[at / 2u] >> (at % 2u * 16u)) << 16u)")
            }
            (Self::Int8, 4) => format!("vec4<f32>(unpack4xI8({buffer}[at / 4u]))"),
            (Self::Packed(_), 4) => "loom_weight_four(at)".to_string(),
            (Self::Packed(_), _) => "loom_weight(at)".to_string(),
            (Self::Int8, _) => format!("f32(bitcast<i32>({buffer}[at / 4u] << (24u - at % 4u * 8u)) >> 24u)"),
        }
    }
}

/// What happens to an element of C before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish<'a> {
    /// Nothing.
    None,
    /// WGSL text of `fn activate(x: f32) -> f32`, with what it calls.
    Activate(&'a str),
    /// WGSL text of `fn derivative(saved: f32) -> f32`, which multiplies the element.
    Derivative(&'a str),
}

/// The extents and strides that every product kernel is given, in this order.
pub(super) const CONSTANTS: &str = "struct Constants {
    step: u32,
    rows: u32,
    columns: u32,
    depth: u32,
    // The summed extent is cut into so many parts of so many products.
    parts: u32,
    chunk: u32,
    left_stride: u32,
    left_offset: u32,
    right_stride: u32,
    right_offset: u32,
    output_stride: u32,
    output_offset: u32,
    // Where the sums of B's columns go.
    sums_offset: u32,
}
var<immediate> constants: Constants;
";

/// Collects bindings and hooks, and the operands in the order of their bindings.
#[derive(Default)]
pub(super) struct Declarations {
    pub(super) text: String,
    pub(super) roles: Vec<Role>,
}

impl Declarations {
    pub(super) fn new() -> Self {
        Self { text: CONSTANTS.to_string(), roles: Vec::new() }
    }

    pub(super) fn bind(&mut self, role: Role, name: &str, access: &str, element: &str) {
        let binding = self.roles.len();
        self.line(&format!("@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;"));
        self.roles.push(role);
    }

    pub(super) fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// `load_a` from a matrix of f32.
    pub(super) fn left(&mut self, matrix: Matrix, width: u32) {
        self.bind(Role::Left, "left", "read", element(width));
        let at = match matrix.transposed {
            false => "constants.left_offset + row * constants.left_stride + k",
            true => "constants.left_offset + k * constants.left_stride + row",
        };
        let ty = element(width);
        self.line(&format!(
            "fn load_a(row: u32, k: u32) -> {ty} {{\n    return left[({at}) / {width}u];\n}}"
        ));
    }

    /// `load_b` from a matrix stored as `storage`, decoded as it is loaded.
    pub(super) fn right(&mut self, matrix: Matrix, storage: Storage, width: u32) {
        let at = match matrix.transposed {
            false => "constants.right_offset + k * constants.right_stride + column",
            true => "constants.right_offset + column * constants.right_stride + k",
        };
        let ty = element(width);
        if storage == Storage::Float32 {
            self.bind(Role::Right, "right", "read", ty);
            self.line(&format!(
                "fn load_b(k: u32, column: u32) -> {ty} {{\n    return right[({at}) / {width}u];\n}}"
            ));
            return;
        }
        self.bind(Role::Right, "right", "read", "u32");
        if let (Some((packing, block)), 4) = (storage.blocks("loom_block"), width) {
            // Fours of a block.
            let [row, column] = if matrix.transposed { ["column", "k"] } else { ["k", "column"] };
            self.text += &block.inputs("loom_block", (packing.rows, packing.channels), "right");
            self.line(&format!(
                "fn load_b(k: u32, column: u32) -> vec4<f32> {{\n    return loom_block_inputs({row}, {column});\n}}"
            ));
            return;
        }
        let value = storage.element("right", width);
        if let Some(scale) = storage.scale(width) {
            self.bind(Role::Scales, "scales", "read", scale);
        }
        self.text.push_str(&storage.functions("right", "scales"));
        let scale = if storage == Storage::Int8 {
            // Scales belong to stored columns: columns of B, or the summed extent of its transpose.
            let channel = if matrix.transposed { "k" } else { "column" };
            format!(" * scales[{channel} / {width}u]")
        } else {
            String::new()
        };
        self.line(&format!(
            "fn load_b(k: u32, column: u32) -> {ty} {{\n    let at = {at};\n    return {value}{scale};\n}}"
        ));
    }

    /// `load_four` from a matrix whose rows follow each other without a gap.
    pub(super) fn right_in_fours(&mut self, storage: Storage) {
        let plain = storage == Storage::Float32;
        self.bind(Role::Right, "right", "read", if plain { "vec4<f32>" } else { "u32" });
        let value = storage.element("right", 4);
        if let Some(scale) = storage.scale(1) {
            self.bind(Role::Scales, "scales", "read", scale);
        }
        self.text.push_str(&storage.functions("right", "scales"));
        let scale = if storage == Storage::Int8 {
            let scales = ["x", "y", "z", "w"].map(|c| format!("scales[column.{c}]"));
            format!(" * vec4<f32>({})", scales.join(", "))
        } else {
            String::new()
        };
        self.line(&format!(
            "fn load_four(element: u32, column: vec4<u32>) -> vec4<f32> {{
    let at = constants.right_offset + element;
    return {value}{scale};\n}}"
        ));
    }

    /// `store` to the sums of the parts.
    pub(super) fn store_partials(&mut self, width: u32) {
        let ty = element(width);
        self.bind(Role::Partials, "partials", "read_write", ty);
        self.line(&format!(
            "fn store(row: u32, column: u32, value: {ty}) {{
    partials[((part * constants.rows + row) * constants.columns + column) / {width}u] = value;
}}"
        ));
    }

    /// The sums of the parts, to be read back.
    pub(super) fn partials(&mut self, width: u32) {
        self.bind(Role::Partials, "partials", "read", element(width));
    }

    /// `store` to C, with what comes before.
    pub(super) fn store(&mut self, width: u32, accumulate: bool, bias: bool, finish: Finish<'_>) {
        let ty = element(width);
        if bias {
            self.bind(Role::Bias, "bias", "read", ty);
        }
        if matches!(finish, Finish::Derivative(_)) {
            self.bind(Role::Saved, "saved", "read", ty);
        }
        self.bind(Role::Output, "output", "read_write", ty);
        let each = |call: &dyn Fn(&str) -> String| match width {
            4 => format!("vec4<f32>({})", ["x", "y", "z", "w"].map(|c| call(&format!(".{c}"))).join(", ")),
            _ => call(""),
        };
        let mut body = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            "    let at = (constants.output_offset + row * constants.output_stride + column) / {width}u;"
        );
        if accumulate {
            body.push_str("    let sum = value + output[at];\n");
        } else {
            body.push_str("    let sum = value;\n");
        }
        if bias {
            let _ = writeln!(body, "    let biased = sum + bias[column / {width}u];");
        } else {
            body.push_str("    let biased = sum;\n");
        }
        match finish {
            Finish::None => body.push_str("    output[at] = biased;\n"),
            Finish::Activate(text) => {
                self.line(text);
                let value = each(&|c| format!("activate(biased{c})"));
                let _ = writeln!(body, "    output[at] = {value};");
            }
            Finish::Derivative(text) => {
                self.line(text);
                let factor = each(&|c| format!("derivative(before{c})"));
                let _ = writeln!(body, "    let before = saved[at];\n    output[at] = biased * {factor};");
            }
        }
        self.line(&format!("fn store(row: u32, column: u32, value: {ty}) {{\n{body}}}"));
    }
}

/// How a matrix is best loaded, where a run of `depth` or `across` elements lies side by side.
pub(super) fn loader(matrix: Matrix, depth_is_contiguous: bool, depth: usize, across: usize) -> Loader {
    let (along, run) = if depth_is_contiguous { (Along::Depth, depth) } else { (Along::Across, across) };
    Loader { along, width: if matrix.in_fours(run) { 4 } else { 1 } }
}

/// [`loader`] of B, whose elements lie as `storage` has them.
pub(super) fn right_loader(matrix: Matrix, storage: Storage, depth: usize, across: usize) -> Loader {
    let Storage::Packed(packing) = storage else {
        return loader(matrix, matrix.transposed, depth, across);
    };
    if !packing.dtype.is_block_format() {
        return loader(matrix, matrix.transposed, depth, across);
    }
    // Blocks lie along the stored columns, each of which is filled up with zeros.
    let (along, run) = match matrix.transposed {
        false => (Along::Depth, depth),
        true => (Along::Across, across),
    };
    let fours = run.is_multiple_of(4) && matrix.offset == 0 && matrix.stride == packing.channels;
    Loader { along, width: if fours { 4 } else { 1 } }
}

/// The WGSL type of so many elements.
pub(super) fn element(width: u32) -> &'static str {
    if width == 4 { "vec4<f32>" } else { "f32" }
}
