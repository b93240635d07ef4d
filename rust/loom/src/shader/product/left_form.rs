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
    /// What a query has gathered over spans of keys, each with its largest score and the sum of its weights relative
    /// to that: joined, divided by the sum of all weights. The heads of a row lie behind each other.
    Spans {
        /// Two numbers for each span of each head of each row: the largest score, and the sum of the weights.
        weights: &'a Operand,
        /// Spans of each head.
        spans: usize,
        /// Elements of a head, a multiple of four.
        head_dim: usize,
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
            Self::Spans { weights, spans, head_dim } => shader
                .read("span_weights", "vec2<f32>", weights.clone())
                .constant("SPANS", spans)
                .constant("HEAD_UNITS", head_dim / 4)
                .append(JOINED),
        }
    }

    /// What becomes of what is loaded of so many rows: `own` is a row's number among them.
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
                    _ => format!("    squares[own] += {square};\n"),
                };
                Texts {
                    one: format!("{}    return x{};\n", square("x * x"), times(one("gain", "k"))),
                    four: format!("{}    return x{};\n", square("dot(x, x)"), times(four("gain", "k"))),
                }
            }
            Self::Spans { .. } => Texts {
                one: "    return joined(row, k)[k % 4u];\n".into(),
                four: "    return joined(row, k);\n".into(),
            },
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

/// `joined(row, k)`: the four elements of a row among which k is, as `left` and `span_weights` give them.
const JOINED: &str = "fn joined(row: u32, k: u32) -> vec4<f32> {
    let unit = k / 4u;
    let head = (row * (constants.depth / (4u * HEAD_UNITS)) + unit / HEAD_UNITS) * SPANS;
    // A span without a key has weights of no sum.
    var largest = span_weights[head].x;
    for (var span = 1u; span < SPANS; span += 1u) {
        largest = max(largest, span_weights[head + span].x);
    }
    var total = 0.0;
    var gathered = vec4<f32>();
    for (var span = 0u; span < SPANS; span += 1u) {
        let weight = span_weights[head + span];
        let share = exp(weight.x - largest);
        total = fma(weight.y, share, total);
        gathered = fma(vec4<f32>(share), left[(head + span) * HEAD_UNITS + unit % HEAD_UNITS], gathered);
    }
    // Who has seen nothing has gathered nothing.
    return gathered * select(1.0 / total, 0.0, total == 0.0);
}
";
