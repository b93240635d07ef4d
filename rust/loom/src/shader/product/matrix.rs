//! Matrices in storage buffers as operands of the product kernels: their declarations and hooks.

use super::tile::{Along, Loader};
use crate::dtype::{BlockWords, DType, Granularity, Packing};
use crate::shader::{Operand, Shader};

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
    fn scale(self, width: u32) -> Option<&'static str> {
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

    /// Declares a weight as an array of this name, of words or of so many elements together where they are
    /// plain, with its `scales`, so many together, and what [`element`](Storage::element) calls.
    pub fn declare(self, shader: Shader, name: &str, [width, scales]: [u32; 2], weight: &Operand) -> Shader {
        let word = if self == Self::Float32 { element(width) } else { "u32" };
        let shader = shader.read(name, word, weight.clone());
        let shader = match self.scale(scales) {
            Some(element) => shader.scales(element, weight),
            None => shader,
        };
        match self {
            Self::Packed(packing) => shader.append(&packing.wgsl("loom_weight", name, "scales")),
            _ => shader,
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

/// `left`, a matrix of f32, so many elements together.
pub(super) fn declare_left(shader: Shader, matrix: Matrix, width: u32, operand: &Operand) -> Shader {
    shader
        .read("left", element(width), operand.clone())
        .number("left_stride", matrix.stride)
        .number("left_offset", matrix.offset)
}

/// `load_a` from a matrix of f32.
pub(super) fn left(shader: Shader, matrix: Matrix, width: u32, operand: &Operand) -> Shader {
    let at = match matrix.transposed {
        false => "constants.left_offset + row * constants.left_stride + k",
        true => "constants.left_offset + k * constants.left_stride + row",
    };
    let ty = element(width);
    declare_left(shader, matrix, width, operand)
        .append(&format!("fn load_a(row: u32, k: u32) -> {ty} {{\n    return left[({at}) / {width}u];\n}}\n"))
}

/// `load_a` and `load_b` with this number behind their names, of a product whose A lies row after row and whose B is
/// stored transposed, so many elements a row both.
pub(super) fn segment(
    shader: Shader,
    number: usize,
    extent: u32,
    [left_width, right_width]: [u32; 2],
    [left, right]: [&Operand; 2],
) -> Shader {
    let (left_type, right_type) = (element(left_width), element(right_width));
    shader
        .read(&format!("left{number}"), left_type, left.clone())
        .read(&format!("right{number}"), right_type, right.clone())
        .append(&format!(
            "fn load_a{number}(row: u32, k: u32) -> {left_type} {{
    return left{number}[(row * {extent}u + k) / {left_width}u];
}}
fn load_b{number}(k: u32, column: u32) -> {right_type} {{
    return right{number}[(column * {extent}u + k) / {right_width}u];
}}
"
        ))
}

/// `load_b` from a matrix stored as `storage`, decoded as it is loaded.
pub(super) fn right(
    shader: Shader,
    matrix: Matrix,
    storage: Storage,
    width: u32,
    operand: &Operand,
) -> Shader {
    if let (Some((packing, block)), 4) = (storage.blocks("loom_block"), width) {
        // Fours of a block.
        let [row, column] = if matrix.transposed { ["column", "k"] } else { ["k", "column"] };
        return shader
            .read("right", "u32", operand.clone())
            .append(&block.inputs("loom_block", (packing.rows, packing.channels), "right"))
            .append(&format!(
                "fn load_b(k: u32, column: u32) -> vec4<f32> {{\n    return loom_block_inputs({row}, {column});\n}}\n"
            ));
    }
    let at = match matrix.transposed {
        false => "constants.right_offset + k * constants.right_stride + column",
        true => "constants.right_offset + column * constants.right_stride + k",
    };
    // Scales belong to stored columns: columns of B, or the summed extent of its transpose.
    let channel = if matrix.transposed { "k" } else { "column" };
    let load = match storage {
        Storage::Float32 => format!("return right[({at}) / {width}u];"),
        Storage::Int8 => {
            let value = storage.element("right", width);
            format!("let at = {at};\n    return {value} * scales[{channel} / {width}u];")
        }
        _ => format!("let at = {at};\n    return {};", storage.element("right", width)),
    };
    storage
        .declare(shader, "right", [width; 2], operand)
        .number("right_stride", matrix.stride)
        .number("right_offset", matrix.offset)
        .append(&format!("fn load_b(k: u32, column: u32) -> {} {{\n    {load}\n}}\n", element(width)))
}

/// `load_four` from a matrix whose rows follow each other without a gap.
pub(super) fn right_in_fours(shader: Shader, matrix: Matrix, storage: Storage, operand: &Operand) -> Shader {
    let value = storage.element("right", 4);
    let scale = if storage == Storage::Int8 {
        let scales = ["x", "y", "z", "w"].map(|c| format!("scales[column.{c}]"));
        format!(" * vec4<f32>({})", scales.join(", "))
    } else {
        String::new()
    };
    storage.declare(shader, "right", [4, 1], operand).number("right_offset", matrix.offset).append(&format!(
        "fn load_four(element: u32, column: vec4<u32>) -> vec4<f32> {{
    let at = constants.right_offset + element;
    return {value}{scale};\n}}\n"
    ))
}

/// `store` to the sums of the parts, (parts, rows, columns).
pub(super) fn store_partials(shader: Shader, width: u32, partials: &Operand) -> Shader {
    let ty = element(width);
    shader.write("partials", ty, partials.clone()).append(&format!(
        "fn store(row: u32, column: u32, value: {ty}) {{
    partials[((part * constants.rows + row) * constants.columns + column) / {width}u] = value;
}}\n"
    ))
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
    if !packing.has_blocks() {
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
