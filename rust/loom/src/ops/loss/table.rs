//! The table of losses: one row each, from which their names, settings and code come.

use crate::ops::pointwise::Arithmetic;
use crate::{Error, Result, error};
use std::ops::RangeInclusive;

/// A loss of one element o against its target t, with its setting filled in.
pub(super) trait ElementFunction: Copy {
    /// The loss.
    fn value<A: Arithmetic>(self, o: A, t: A) -> A;

    /// Its derivative with respect to o.
    fn slope<A: Arithmetic>(self, o: A, t: A) -> A;
}

/// Code that is to be compiled once for each loss of single elements.
pub(super) trait ElementVisitor {
    /// What `visit` returns.
    type Output;

    /// Runs for one row. Mark it `#[inline(always)]` inside kernels.
    fn visit<F: ElementFunction>(self, function: F) -> Self::Output;
}

/// The setting of a loss, and what it must be between.
pub(crate) struct Setting<'a> {
    pub(crate) name: &'static str,
    pub(crate) value: &'a mut f64,
    above: f64,
    below: f64,
}

macro_rules! losses {
    (
        elements {$(
            $(#[$doc:meta])*
            $name:ident $text:literal
            $((
                $(#[$setting_doc:meta])*
                $setting:ident = $default:literal, above $least:literal $(below $most:literal)?
            ))?
            |$o:ident, $t:ident| {
                value: $value:expr,
                slope: $slope:expr
                $(, targets: $targets:expr)? $(,)?
            }
        )*}
        classes {$(
            $(#[$class_doc:meta])*
            $class:ident $class_text:literal $([or $($alias:literal),+])?
            $((
                $(#[$absorbed_doc:meta])* $absorbed:ident = $absorbed_default:literal
                $(; $(#[$own_doc:meta])* $own:ident = $own_default:literal, above $own_least:literal)?
            ))?
        )*}
    ) => {
        /// What is measured between an output o and a target t.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum LossFunction {
            $($(#[$doc])* $name $({ $(#[$setting_doc])* $setting: f64 })?,)*
            $(
                $(#[$class_doc])*
                $class $({ $(#[$absorbed_doc])* $absorbed: f64, $($(#[$own_doc])* $own: f64)? })?,
            )*
        }

        impl LossFunction {
            /// Every loss with its default setting, in the table's order.
            pub const ALL: &[LossFunction] = &[
                $(LossFunction::$name $({ $setting: $default })?,)*
                $(LossFunction::$class $({ $absorbed: $absorbed_default, $($own: $own_default)? })?,)*
            ];

            /// The name it is known by.
            pub fn name(self) -> &'static str {
                match self {
                    $(LossFunction::$name { .. } => $text,)*
                    $(LossFunction::$class { .. } => $class_text,)*
                }
            }

            /// The loss of this name, with its default setting.
            ///
            /// # Errors
            /// [`Error::Value`] listing the known names.
            pub fn named(name: &str) -> Result<Self> {
                match name {
                    $($text => Ok(LossFunction::$name $({ $setting: $default })?),)*
                    $($class_text $($(| $alias)+)? => Ok(
                        LossFunction::$class $({ $absorbed: $absorbed_default, $($own: $own_default)? })?
                    ),)*
                    _ => Err(error::unknown("loss", name, Self::ALL.iter().map(|known| known.name()))),
                }
            }

            /// Whether single outputs are scores on both sides of zero, such as logits: above it they mean class 1.
            pub fn decides_at_zero(self) -> bool {
                matches!(
                    self,
                    Self::BinaryCrossEntropy | Self::BinaryFocal { .. } | Self::Hinge | Self::SquaredHinge
                )
            }

            /// Whether it is of distributions over classes, not of single elements.
            pub fn is_over_classes(self) -> bool {
                match self {
                    $(LossFunction::$name { .. } => false,)*
                    $(LossFunction::$class { .. } => true,)*
                }
            }

            /// Its setting, if it has one.
            pub(crate) fn setting(&mut self) -> Option<Setting<'_>> {
                match self {
                    $($(LossFunction::$name { $setting } => {
                        Some(Setting {
                            name: stringify!($setting),
                            value: $setting,
                            above: $least,
                            below: [$($most,)? f64::INFINITY][0],
                        })
                    })?)*
                    $($($(LossFunction::$class { $own, .. } => {
                        Some(Setting {
                            name: stringify!($own),
                            value: $own,
                            above: $own_least,
                            below: f64::INFINITY,
                        })
                    })?)?)*
                    _ => None,
                }
            }

            /// The range that its targets must be in.
            pub(super) fn target_range(self) -> RangeInclusive<f64> {
                match self {
                    $($(LossFunction::$name { .. } => $targets,)?)*
                    LossFunction::KullbackLeibler { .. } => 0.0..=1.0,
                    _ => f64::MIN..=f64::MAX,
                }
            }

            /// Calls `visitor` with this loss's row; `None` for a loss over classes, which has a kernel of
            /// its own.
            #[inline(always)]
            pub(super) fn visit<Visitor: ElementVisitor>(self, visitor: Visitor) -> Option<Visitor::Output> {
                match self {
                    $(LossFunction::$name $({ $setting })? => {
                        Some(visitor.visit(rows::$name { $($setting)? }))
                    })*
                    $(LossFunction::$class { .. } => None,)*
                }
            }
        }

        /// The rows as types, so that code can be compiled for each.
        mod rows {
            $(
                #[derive(Clone, Copy)]
                pub struct $name { $(pub $setting: f64)? }
            )*
        }

        $(
            impl ElementFunction for rows::$name {
                #[inline(always)]
                fn value<A: Arithmetic>(self, $o: A, $t: A) -> A {
                    let Self { $($setting)? } = self;
                    $value
                }

                #[inline(always)]
                fn slope<A: Arithmetic>(self, $o: A, $t: A) -> A {
                    let Self { $($setting)? } = self;
                    $slope
                }
            }
        )*
    };
}

losses! {
    elements {
        /// `(o - t)^2`.
        MeanSquaredError "mse" |o, t| {
            value: (o - t) * (o - t),
            slope: (o - t) + (o - t),
        }

        /// `|o - t|`; its gradient at 0 is 0.
        MeanAbsoluteError "mae" |o, t| {
            value: (o - t).abs(),
            slope: {
                // Where neither is larger the difference is 0 of either sign, or NaN, which must show.
                let neither = (o - t).plus(0.0);
                o.select_greater(t, o.constant(1.0), t.select_greater(o, o.constant(-1.0), neither))
            },
        }

        /// `(o - t)^2 / 2` within delta of the target, `delta (|o - t| - delta / 2)` beyond.
        Huber "huber" (
            /// Where the parabola becomes a line; above zero.
            delta = 1.0, above 0.0
        ) |o, t| {
            value: {
                let distance = (o - t).abs();
                let line = (distance - o.constant(delta).times(0.5)).times(delta);
                distance.select_greater(o.constant(delta), line, distance.times(0.5) * distance)
            },
            slope: (o - t).at_most(delta).at_least(-delta),
        }

        /// `-(t log sigmoid(o) + (1 - t) log(1 - sigmoid(o)))`; o are logits.
        BinaryCrossEntropy "binary_cross_entropy" |o, t| {
            // No exponential overflows.
            value: o.at_least(0.0) - o * t + (-o.abs()).exp().ln_1p(),
            slope: o.sigmoid() - t,
            targets: 0.0..=1.0,
        }

        /// `ln cosh(o - t)`: a parabola near the target, a line far from it, smooth everywhere.
        LogCosh "log_cosh" |o, t| {
            value: {
                // The logarithm of 2 / (1 + exp(-2 d)), which neither overflows nor loses a small d.
                let distance = (o - t).abs();
                distance - distance.tanh().ln_1p()
            },
            slope: (o - t).tanh(),
        }

        /// `max(0, 1 - t o)`; t are -1 and 1, o scores.
        Hinge "hinge" |o, t| {
            value: (o * t).one_minus().at_least(0.0),
            slope: -t * (o * t).one_minus().at_least(0.0).sign(),
            targets: -1.0..=1.0,
        }

        /// `max(0, 1 - t o)^2`; t are -1 and 1, o scores.
        SquaredHinge "squared_hinge" |o, t| {
            value: (o * t).one_minus().at_least(0.0).squared(),
            slope: -(t + t) * (o * t).one_minus().at_least(0.0),
            targets: -1.0..=1.0,
        }

        /// `exp(o) - t o`, what is left of the negative logarithm of Poisson's probability of a count t without
        /// what does not depend on o; o are logarithms of rates.
        Poisson "poisson" |o, t| {
            value: o.exp() - t * o,
            slope: o.exp() - t,
            targets: 0.0..=f64::MAX,
        }

        /// `max(q (t - o), (q - 1) (t - o))`, which a share q of all targets lies below (Koenker and Bassett 1978).
        Quantile "quantile" (
            /// The share; between 0 and 1.
            quantile = 0.5, above 0.0 below 1.0
        ) |o, t| {
            value: (t - o).select_greater(o.constant(0.0), (t - o).times(quantile), (t - o).times(quantile - 1.0)),
            slope: {
                // Where neither is larger the difference is 0 of either sign, or NaN, which must show.
                let neither = (o - t).plus(0.0);
                t.select_greater(o, o.constant(-quantile), o.select_greater(t, o.constant(1.0 - quantile), neither))
            },
        }

        /// The output itself, whatever the target: what is minimised is computed before.
        MeanOutput "mean_output" |o, t| {
            value: {
                let _ = t;
                o
            },
            slope: {
                let _ = t;
                o.constant(1.0)
            },
        }

        /// `-(t (1 - p)^gamma log p + (1 - t) p^gamma log(1 - p))` with `p = sigmoid(o)`, which looks away from what
        /// is right already (Lin et al. 2017); o are logits.
        BinaryFocal "binary_focal" (
            /// How strongly; above 0, at which it would be binary cross-entropy.
            gamma = 2.0, above 0.0
        ) |o, t| {
            value: {
                let [yes, no] = [softplus(-o), softplus(o)];
                t * no.times(-gamma).exp() * yes + t.one_minus() * yes.times(-gamma).exp() * no
            },
            slope: {
                let [yes, no] = [softplus(-o), softplus(o)];
                let [p, q] = [o.sigmoid(), (-o).sigmoid()];
                t.one_minus() * yes.times(-gamma).exp() * ((q * no).times(gamma) + p)
                    - t * no.times(-gamma).exp() * ((p * yes).times(gamma) + q)
            },
            targets: 0.0..=1.0,
        }
    }

    classes {
        /// `-sum t log softmax(o / temperature)` over the class axis; o are logits.
        CrossEntropy "cross_entropy" [or "crossentropy", "cross-entropy"] (
            /// Divides the logits: that of a softmax layer which the loss has absorbed.
            temperature = 1.0
        )

        /// `sum t (log t - log softmax(o / temperature))` over the class axis, by how much distributions t are away
        /// from those of the logits o: cross-entropy less what it cannot go below.
        KullbackLeibler "kl_divergence" (
            /// Divides the logits: that of a softmax layer which the loss has absorbed.
            temperature = 1.0
        )

        /// `-sum t (1 - p)^gamma log p` over the class axis with `p = softmax(o / temperature)`, which looks away from
        /// what is right already (Lin et al. 2017); o are logits.
        Focal "focal" (
            /// Divides the logits: that of a softmax layer which the loss has absorbed.
            temperature = 1.0;
            /// How strongly; above 0, at which it would be cross-entropy.
            gamma = 2.0, above 0.0
        )

        /// `-sum t log max(o, 1e-12)` over the class axis; o are probabilities.
        NegativeLogLikelihood "nll"
    }
}

/// `log(1 + exp(x))`; no exponential overflows.
#[inline(always)]
fn softplus<A: Arithmetic>(x: A) -> A {
    x.at_least(0.0) + (-x.abs()).exp().ln_1p()
}

#[deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]
impl LossFunction {
    /// Itself with another value of its setting.
    ///
    /// # Errors
    /// [`Error::Value`] for a name that is not its setting's, or a value out of range, which is shown as
    /// `given`.
    pub(crate) fn with_setting(mut self, name: &str, value: Option<f64>, given: &str) -> Result<Self> {
        let loss = self.name();
        let Some(setting) = self.setting().filter(|setting| setting.name == name) else {
            return Err(Error::Value(format!("loss \"{loss}\" has no parameter \"{name}\"")));
        };
        let (above, below) = (setting.above, setting.below);
        match value {
            Some(value) if value.is_finite() && value > above && value < below => *setting.value = value,
            _ => {
                let and = if below.is_finite() { format!(" and below {below}") } else { String::new() };
                return Err(Error::Value(format!("{loss}: {name} must be above {above}{and}, got {given}")));
            }
        }
        Ok(self)
    }
}
