//! What becomes of a product's left operand where it is loaded: what would else be a pass of its own before it.

use super::matrix::element;
use crate::shader::{Operand, Shader};

/// What A is made of.
#[derive(Clone, Copy, Debug)]
pub enum LeftForm<'a> {
    /// As it lies.
    Plain,
    /// Each row divided by the root of the mean of its squares, and then times a gain by column.
    MeanSquare {
        /// One number for each column of A.
        gain: Option<&'a Operand>,
        /// Added to the mean of the squares.
        epsilon: f64,
    },
    /// `gate(A) up`, element by element.
    Gated {
        /// Like A.
        up: &'a Operand,
        /// WGSL text of `fn gate(x: f32) -> f32`, with what it calls.
        gate: &'a str,
    },
}

/// What follows where one element, or four, have been loaded as `x` from place `at`, of column `k` of `row`.
pub(super) struct Texts {
    pub(super) one: String,
    pub(super) four: String,
}

impl LeftForm<'_> {
    /// Whether the products of a row are multiplied by `inverse_of` the sum of its squares, which its kernel adds up.
    pub(super) fn sums_squares(self) -> bool {
        matches!(self, Self::MeanSquare { .. })
    }

    /// Declares what it reads beside A, in fours where A is.
    pub(super) fn declare(self, shader: Shader, fours: bool) -> Shader {
        let ty = element(if fours { 4 } else { 1 });
        match self {
            Self::Plain => shader,
            Self::MeanSquare { gain, epsilon } => {
                let shader = shader.float("EPSILON", epsilon).append(
                    "fn inverse_of(squares: f32) -> f32 {\n    \
                     return inverseSqrt(squares / f32(constants.depth) + EPSILON);\n}\n",
                );
                match gain {
                    Some(gain) => shader.read("gain", ty, gain.clone()),
                    None => shader,
                }
            }
            Self::Gated { up, gate } => shader.read("up", ty, up.clone()).append(gate),
        }
    }

    /// What becomes of what is loaded of so many rows.
    pub(super) fn texts(self, rows: u32, fours: bool) -> Texts {
        let four = |name: &str, at: &str| match fours {
            true => format!("{name}[{at} / 4u]"),
            false => {
                format!("vec4<f32>({name}[{at}], {name}[{at} + 1u], {name}[{at} + 2u], {name}[{at} + 3u])")
            }
        };
        let one = |name: &str, at: &str| match fours {
            true => format!("{name}[{at} / 4u][{at} % 4u]"),
            false => format!("{name}[{at}]"),
        };
        match self {
            Self::Plain => Texts { one: "    return x;\n".into(), four: "    return x;\n".into() },
            Self::MeanSquare { gain, .. } => {
                let times =
                    |gains: String| if gain.is_some() { format!(" * {gains}") } else { String::new() };
                let square = |square: &str| match rows {
                    1 => format!("    squares[0] += {square};\n"),
                    _ => format!("    squares[row] += {square};\n"),
                };
                Texts {
                    one: format!("{}    return x{};\n", square("x * x"), times(one("gain", "k"))),
                    four: format!("{}    return x{};\n", square("dot(x, x)"), times(four("gain", "k"))),
                }
            }
            Self::Gated { .. } => Texts {
                one: format!("    return gate(x) * {};\n", one("up", "at")),
                four: format!(
                    "    return vec4<f32>(gate(x.x), gate(x.y), gate(x.z), gate(x.w)) * {};\n",
                    four("up", "at")
                ),
            },
        }
    }
}
