//! The table of activations: one row each, from which all their code comes.

use super::Arithmetic;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// What the derivative of an activation is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// The input, x.
    Input,
    /// The output, y; the input need not be kept.
    Output,
}

/// One row of the table, with its parameters filled in.
pub trait Function: Copy + Send + Sync {
    /// `y` at `x`.
    fn value<A: Arithmetic>(self, x: A) -> A;

    /// `dy/dx`, from what [`Activation::saved`] says.
    fn derivative<A: Arithmetic>(self, saved: A) -> A;
}

/// Code that is to be compiled once for each row.
///
/// [`Activation::visit`] chooses the row once, so a loop inside `visit` has no
/// choice left to make.
pub trait FunctionVisitor {
    /// What `visit` returns.
    type Output;

    /// Runs for one row. Mark it `#[inline(always)]` inside kernels.
    fn visit<F: Function>(self, function: F) -> Self::Output;
}

macro_rules! activations {
    ($(
        $(#[$doc:meta])*
        $name:ident $text:literal $(($($(#[$parameter_doc:meta])* $parameter:ident = $default:literal),*))? {
            saved: $saved:expr,
            value: |$x:ident| $value:expr,
            derivative: |$from:ident| $derivative:expr $(,)?
        }
    )*) => {
        /// A function applied to each element.
        ///
        /// As data it is its name (`"relu"`), or for other than default
        /// parameters a map from its name to them (`{"leaky_relu": {"slope": 0.2}}`).
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub enum Activation {
            $(
                $(#[$doc])*
                $name $({ $($(#[$parameter_doc])* $parameter: f64),* })?,
            )*
        }

        impl Activation {
            /// Every activation with its default parameters, in the table's order.
            pub const ALL: &[Activation] = &[$(Activation::$name $({ $($parameter: $default),* })?),*];

            /// The name it is known by.
            pub fn name(self) -> &'static str {
                match self {
                    $(Activation::$name { .. } => $text,)*
                }
            }

            /// What the derivative is computed from.
            pub fn saved(self) -> Saved {
                match self {
                    $(Activation::$name $({ $($parameter),* })? => $saved,)*
                }
            }

            /// The parameters by name.
            pub fn parameters(self) -> Vec<(&'static str, f64)> {
                match self {
                    $(Activation::$name $({ $($parameter),* })? => vec![$($((stringify!($parameter), $parameter)),*)?],)*
                }
            }

            /// The parameters by name, to change.
            pub(super) fn parameters_mut(&mut self) -> Vec<(&'static str, &mut f64)> {
                match self {
                    $(Activation::$name $({ $($parameter),* })? => vec![$($((stringify!($parameter), $parameter)),*)?],)*
                }
            }

            /// Calls `visitor` with this activation's row.
            #[inline(always)]
            pub fn visit<Visitor: FunctionVisitor>(self, visitor: Visitor) -> Visitor::Output {
                match self {
                    $(Activation::$name $({ $($parameter),* })? => {
                        visitor.visit(rows::$name { $($($parameter),*)? })
                    })*
                }
            }
        }

        /// The rows as types, so that code can be compiled for each.
        mod rows {
            $(
                #[derive(Clone, Copy)]
                pub struct $name { $($(pub $parameter: f64),*)? }
            )*
        }

        $(
            impl Function for rows::$name {
                #[inline(always)]
                fn value<A: Arithmetic>(self, $x: A) -> A {
                    let Self { $($($parameter),*)? } = self;
                    $value
                }

                #[inline(always)]
                #[allow(unused_variables, reason = "a constant derivative looks at no parameter")]
                fn derivative<A: Arithmetic>(self, $from: A) -> A {
                    let Self { $($($parameter),*)? } = self;
                    $derivative
                }
            }
        )*
    };
}

// The kin of relu have derivative 0, and leaky_relu its slope, at x <= 0.
// Where the derivative can be had from the output, it is, so that not both are kept.
activations! {
    /// `y = x`.
    #[default]
    Linear "linear" {
        saved: Saved::Output,
        value: |x| x,
        derivative: |y| y.constant(1.0),
    }

    /// `y = max(0, x)`.
    Relu "relu" {
        saved: Saved::Output,
        value: |x| x.at_least(0.0),
        derivative: |y| y.select_positive(y.constant(1.0), y.constant(0.0)),
    }

    /// `y = x` above 0, `slope x` elsewhere.
    LeakyRelu "leaky_relu" (
        /// The slope below 0.
        slope = 0.01
    ) {
        // A negative slope makes positive outputs of both signs.
        saved: if slope >= 0.0 { Saved::Output } else { Saved::Input },
        value: |x| x.select_positive(x, x.times(slope)),
        derivative: |either| either.select_positive(either.constant(1.0), either.constant(slope)),
    }

    /// `y = max(0, x)^2`.
    ReluSquared "relu_squared" {
        saved: Saved::Output,
        value: |x| x.at_least(0.0) * x.at_least(0.0),
        derivative: |y| y.sqrt().times(2.0),
    }

    /// `y = 1.1 max(0, x)`.
    ScaledRelu "scaled_relu" {
        saved: Saved::Output,
        value: |x| x.at_least(0.0).times(1.1),
        derivative: |y| y.select_positive(y.constant(1.1), y.constant(0.0)),
    }

    /// `y = 1 / (1 + exp(-x))`.
    Sigmoid "sigmoid" {
        saved: Saved::Output,
        value: |x| x.sigmoid(),
        derivative: |y| y * y.one_minus(),
    }

    /// The hyperbolic tangent.
    Tanh "tanh" {
        saved: Saved::Output,
        value: |x| x.tanh(),
        derivative: |y| y.one_minus() * y.plus(1.0),
    }

    /// `y = x Phi(x)`, with the exact distribution function of the standard normal.
    Gelu "gelu" {
        saved: Saved::Input,
        value: |x| x.times(0.5) * x.times(FRAC_1_SQRT_2).erf().plus(1.0),
        derivative: |x| {
            let cumulative = x.times(FRAC_1_SQRT_2).erf().plus(1.0).times(0.5);
            let density = (x * x).times(-0.5).exp().times(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            cumulative + x * density
        },
    }

    /// gelu with Phi replaced by `(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`,
    /// which is the logistic function of twice that argument.
    GeluTanh "gelu_tanh" {
        saved: Saved::Input,
        value: |x| x * (x * (x * x).times(GELU_CUBIC).plus(1.0)).times(2.0 * GELU_FACTOR).sigmoid(),
        derivative: |x| {
            // Beyond 30 the derivative is 0 or 1, and powers of x could overflow.
            let x = x.at_least(-30.0).at_most(30.0);
            let square = x * x;
            let s = (x * square.times(GELU_CUBIC).plus(1.0)).times(2.0 * GELU_FACTOR).sigmoid();
            let slope = square.times(3.0 * GELU_CUBIC).plus(1.0).times(2.0 * GELU_FACTOR);
            s + s * s.one_minus() * x * slope
        },
    }

    /// `y = x / (1 + exp(-x))`, also known as swish.
    Silu "silu" {
        saved: Saved::Input,
        value: |x| x * x.sigmoid(),
        derivative: |x| {
            let s = x.sigmoid();
            s * (x * s.one_minus()).plus(1.0)
        },
    }

    /// `y = ln(1 + exp(x))`.
    Softplus "softplus" {
        saved: Saved::Output,
        value: |x| x.at_least(0.0) + (-x.abs()).exp().ln_1p(),
        derivative: |y| -(-y).exp_m1(),
    }

    /// `y = x tanh(ln(1 + exp(x)))`.
    Mish "mish" {
        saved: Saved::Input,
        // tanh(ln(1 + e)) = n / (n + 2) with n = e (e + 2), which is 1 long before x = 40.
        value: |x| {
            let e = x.at_most(40.0).exp();
            let n = e * e.plus(2.0);
            x * (n / n.plus(2.0))
        },
        derivative: |x| {
            let x = x.at_most(40.0);
            let e = x.exp();
            let n = e * e.plus(2.0);
            let d = n.plus(2.0);
            n / d + x * (e * e.plus(1.0) / d).times(4.0) / d
        },
    }

    /// `y = x` above 0, `alpha (exp(x) - 1)` elsewhere.
    Elu "elu" (
        /// Minus the limit at minus infinity.
        alpha = 1.0
    ) {
        // A negative alpha makes positive outputs of both signs.
        saved: if alpha >= 0.0 { Saved::Output } else { Saved::Input },
        value: |x| x.select_positive(x, x.exp_m1().times(alpha)),
        derivative: |either| if alpha >= 0.0 {
            either.select_positive(either.constant(1.0), either.plus(alpha))
        } else {
            either.select_positive(either.constant(1.0), either.exp().times(alpha))
        },
    }

    /// `y = x min(max(x + 3, 0), 6) / 6`, silu of straight lines.
    HardSwish "hardswish" {
        saved: Saved::Input,
        value: |x| x * x.plus(3.0).at_least(0.0).at_most(6.0).times(1.0 / 6.0),
        derivative: |x| {
            let inside = x.times(1.0 / 3.0).plus(0.5);
            let below_3 = (-x).plus(3.0).select_positive(inside, x.constant(1.0));
            x.plus(3.0).select_positive(below_3, x.constant(0.0))
        },
    }

    /// `y = min(max(x + 3, 0), 6) / 6`, a sigmoid of straight lines.
    HardSigmoid "hardsigmoid" {
        saved: Saved::Input,
        value: |x| x.plus(3.0).at_least(0.0).at_most(6.0).times(1.0 / 6.0),
        derivative: |x| {
            let below_3 = (-x).plus(3.0).select_positive(x.constant(1.0 / 6.0), x.constant(0.0));
            x.plus(3.0).select_positive(below_3, x.constant(0.0))
        },
    }

    /// `y = lambda x` above 0, `lambda alpha (exp(x) - 1)` elsewhere, by which rows keep a mean of 0 and a variance of
    /// 1 (Klambauer et al. 2017).
    Selu "selu" {
        saved: Saved::Output,
        value: |x| x.select_positive(x.times(SELU_LAMBDA), x.exp_m1().times(SELU_LAMBDA * SELU_ALPHA)),
        derivative: |y| y.select_positive(y.constant(SELU_LAMBDA), y.plus(SELU_LAMBDA * SELU_ALPHA)),
    }
}

/// The fixed point's constants, as its authors give them.
const SELU_LAMBDA: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

/// The coefficient of `x^3` in the tanh form of gelu.
const GELU_CUBIC: f64 = 0.044_715;
/// `sqrt(2 / pi)`.
const GELU_FACTOR: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
