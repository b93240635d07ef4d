//! The table of optimizers: one row each, from which their names, settings and code come.

use crate::ops::pointwise::Arithmetic;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The most moments that a rule has.
pub(in crate::ops) const MOMENTS: usize = 3;
/// The most numbers of a step that a rule is written in.
pub(in crate::ops) const SCALARS: usize = 4;

/// What one update gives a rule: the same numbers for all weights, decaying or not.
pub(in crate::ops) struct Step<'a, A> {
    /// The learning rate.
    pub(in crate::ops) rate: A,
    /// How strongly weights decay: the rule's setting, or 0 for weights which that leaves out.
    pub(in crate::ops) decay: A,
    /// `1 - beta^n` at the n-th update: what an average that began at 0 has seen of its numbers.
    pub(in crate::ops) seen: &'a dyn Fn(f64) -> A,
    /// `n`.
    pub(in crate::ops) number: A,
}

/// One row of the table, with its settings filled in.
pub(in crate::ops) trait Rule: Copy + Send + Sync {
    /// How many moments it has under some settings; code is made for these numbers alone.
    const COUNTS: &[usize];
    /// Whether each parameter's rate is multiplied by the norm of its weights over that of its directions.
    const BY_NORMS: bool;
    /// Whether directions and new moments are made beside the update, which then takes its directions for gradients
    /// and leaves the moments that it is given.
    const MADE_BESIDE: bool;

    /// Numbers of a step that the update is written in; they are rounded once.
    fn scalars<A: Arithmetic>(self, step: &Step<'_, A>) -> [A; SCALARS];

    /// New weight and moments from old ones and the gradient.
    ///
    /// Moments come in the order of [`Optimizer::slots`]; those that there are not pass through.
    fn update<A: Arithmetic>(
        self,
        scalars: [A; SCALARS],
        w: A,
        g: A,
        moments: [A; MOMENTS],
    ) -> (A, [A; MOMENTS]);

    /// What a rule by norms takes off the weight, times the rate; of other rules nothing.
    fn direction<A: Arithmetic>(self, scalars: [A; SCALARS], w: A, g: A, moments: [A; MOMENTS]) -> A;
}

/// Code that is to be compiled once for each rule.
pub(in crate::ops) trait RuleVisitor {
    /// What `visit` returns.
    type Output;

    /// Runs for one row. Mark it `#[inline(always)]` inside kernels.
    fn visit<R: Rule>(self, rule: R) -> Self::Output;
}

/// The type of a setting of this kind.
macro_rules! setting_type {
    (flag) => {
        bool
    };
    ($number:ident) => {
        f64
    };
}

/// A setting as a number.
macro_rules! setting_number {
    (flag $value:expr) => {
        f64::from(u8::from($value))
    };
    ($number:ident $value:expr) => {
        $value
    };
}

/// Whether a number is in the range of settings of this kind, and what that is.
macro_rules! setting_range {
    (flag $value:expr) => {
        (true, "")
    };
    (share $value:expr) => {
        ((0.0..1.0).contains(&$value), "at least 0 and below 1")
    };
    (amount $value:expr) => {
        ($value.is_finite() && $value >= 0.0, "finite and at least 0")
    };
}

macro_rules! optimizers {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident $text:literal {
            settings: {$(
                $(#[doc = $setting_doc:literal])*
                $setting:ident: $kind:ident = $default:literal $(omit $omitted:literal)?
            ),* $(,)?},
            $(refuses: $refused:expr => $message:literal,)?
            slots: $counts:expr => $slots:expr,
            scalars: |$step:ident| [$($scalar:expr),+],
            update: |$scalars:pat_param, $w:ident, $g:ident, $moments:pat_param| $update:expr,
            $(direction: $direction:expr,)?
            $(beside: $beside:literal,)?
        }
    )*) => {
        /// An update rule with its settings; the learning rate comes from the schedule.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(from = "Config", into = "Config")]
        #[non_exhaustive]
        pub enum Optimizer {
            $($(#[doc = $doc])* $name { $($(#[doc = $setting_doc])* $setting: setting_type!($kind)),* },)*
        }

        /// An optimizer as data: its name and its settings.
        #[derive(Serialize, Deserialize)]
        #[serde(tag = "type")]
        enum Config {
            $(#[serde(rename = $text)] $name(rows::$name),)*
        }

        impl From<Config> for Optimizer {
            fn from(config: Config) -> Self {
                match config {
                    $(Config::$name(rows::$name { $($setting),* }) => Optimizer::$name { $($setting),* },)*
                }
            }
        }

        impl From<Optimizer> for Config {
            fn from(optimizer: Optimizer) -> Self {
                match optimizer {
                    $(Optimizer::$name { $($setting),* } => Config::$name(rows::$name { $($setting),* }),)*
                }
            }
        }

        impl Optimizer {
            /// Every optimizer with its default settings, in the table's order.
            pub const ALL: &[Optimizer] = &[$(Optimizer::$name { $($setting: $default),* }),*];

            /// The name in configs.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Optimizer::$name { .. } => $text,)*
                }
            }

            /// The names of its moments; each has one number a weight.
            pub fn slots(&self) -> &'static [&'static str] {
                match *self {
                    $(
                        #[allow(unused_variables, reason = "most rules have the same moments always")]
                        Optimizer::$name { $($setting),* } => $slots,
                    )*
                }
            }

            /// A setting as a number, where it has one of this name.
            fn setting(&self, name: &str) -> Option<f64> {
                match *self {
                    $(Optimizer::$name { $($setting),* } => {
                        $(if name == stringify!($setting) {
                            return Some(setting_number!($kind $setting));
                        })*
                        None
                    })*
                }
            }

            /// Refuses settings out of range.
            ///
            /// # Errors
            /// [`Error::Value`] naming the setting and its range.
            pub fn validate(&self) -> Result<()> {
                match *self {
                    $(Optimizer::$name { $($setting),* } => {
                        $(check($text, stringify!($setting), $setting, setting_range!($kind $setting))?;)*
                        $(if $refused {
                            return Err(Error::Value(concat!($text, ": ", $message).into()));
                        })?
                    })*
                }
                Ok(())
            }

            /// Calls `visitor` with this optimizer's row.
            #[inline(always)]
            pub(in crate::ops) fn visit<Visitor: RuleVisitor>(&self, visitor: Visitor) -> Visitor::Output {
                match *self {
                    $(Optimizer::$name { $($setting),* } => visitor.visit(rows::$name { $($setting),* }),)*
                }
            }
        }

        /// The rows as types, so that code can be compiled for each.
        mod rows {
            use serde::{Deserialize, Serialize};

            $(
                #[derive(Clone, Copy, Serialize, Deserialize)]
                #[serde(default, deny_unknown_fields)]
                pub struct $name {
                    $($(#[serde(skip_serializing_if = $omitted)])? pub $setting: setting_type!($kind)),*
                }

                impl Default for $name {
                    fn default() -> Self {
                        Self { $($setting: $default),* }
                    }
                }
            )*
        }

        $(
            #[allow(unused_variables, reason = "not every formula looks at every setting")]
            impl Rule for rows::$name {
                const COUNTS: &[usize] = &$counts;
                const BY_NORMS: bool = [$(is_given!($direction),)? false][0];
                const MADE_BESIDE: bool = [$($beside,)? false][0];

                #[inline(always)]
                fn scalars<A: Arithmetic>(self, $step: &Step<'_, A>) -> [A; SCALARS] {
                    let Self { $($setting),* } = self;
                    padded(&[$($scalar),+])
                }

                #[inline(always)]
                fn update<A: Arithmetic>(
                    self,
                    $scalars: [A; SCALARS],
                    $w: A,
                    $g: A,
                    $moments: [A; MOMENTS],
                ) -> (A, [A; MOMENTS]) {
                    let Self { $($setting),* } = self;
                    $update
                }

                #[inline(always)]
                fn direction<A: Arithmetic>(
                    self,
                    $scalars: [A; SCALARS],
                    $w: A,
                    $g: A,
                    $moments: [A; MOMENTS],
                ) -> A {
                    let Self { $($setting),* } = self;
                    [$($direction,)? $w][0]
                }
            }
        )*
    };
}

/// True, of whatever is given.
macro_rules! is_given {
    ($given:expr) => {
        true
    };
}

/// As many numbers as every rule has; those that it lacks are its first.
#[inline(always)]
fn padded<A: Copy>(scalars: &[A]) -> [A; SCALARS] {
    std::array::from_fn(|i| *scalars.get(i).unwrap_or(&scalars[0]))
}

/// Refuses a setting that is not in its range.
fn check<T: std::fmt::Display>(optimizer: &str, setting: &str, value: T, range: (bool, &str)) -> Result<()> {
    match range {
        (true, _) => Ok(()),
        (false, range) => Err(Error::Value(format!("{optimizer}: {setting} must be {range}, got {value}"))),
    }
}

// Every operation is one that IEEE 754 rounds exactly, in the order that PyTorch's documentation writes
// them. Moments are flushed: a weight whose gradient has died leaves some that decay for ever, and below
// the normal numbers they move nothing any more.
optimizers! {
    /// Stochastic gradient descent with momentum: `v = momentum v + g; w -= rate v`, and with
    /// Nesterov's look ahead `w -= rate (g + momentum v)`.
    Sgd "sgd" {
        settings: {
            /// How much of the velocity stays.
            momentum: share = 0.0,
            /// Whether the step looks ahead.
            nesterov: flag = false,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        refuses: nesterov && momentum == 0.0 => "nesterov needs a momentum above 0",
        slots: [0, 1] => if momentum == 0.0 { &[] } else { &["velocity"] },
        scalars: |step| [step.rate, step.decay],
        update: |[rate, decay, ..], w, g, [velocity, b, c]| {
            let momentum = w.constant(momentum);
            let g = decay.mul_add(w, g);
            let velocity = momentum.mul_add(velocity, g).flush();
            let change = if nesterov { momentum.mul_add(velocity, g) } else { velocity };
            (w - rate * change, [velocity, b, c])
        },
    }

    /// Classical momentum (Sutskever et al. 2013): `v = momentum v - rate g; w += v`, so that a change of
    /// the rate only concerns what comes after it.
    Velocity "velocity" {
        settings: {
            /// How much of the velocity stays.
            momentum: share = 0.0,
        },
        slots: [1] => &["velocity"],
        scalars: |step| [step.rate],
        update: |[rate, ..], w, g, [velocity, b, c]| {
            let velocity = (velocity.times(momentum) - rate * g).flush();
            (w + velocity, [velocity, b, c])
        },
    }

    /// Kingma and Ba 2015, with decay coupled to the gradient.
    Adam "adam" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-8,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [step.rate / (step.seen)(beta1), root_scale(step, beta2), step.decay],
        update: |[step_size, root_scale, decay, _], w, g, [mean, square, c]| {
            let g = decay.mul_add(w, g);
            let (ratio, [mean, square]) = adam([beta1, beta2, epsilon], root_scale, g, [mean, square]);
            (w - step_size * ratio, [mean, square, c])
        },
    }

    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW "adamw" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-8,
            /// Times rate and weight, taken off the weight.
            weight_decay: amount = 0.01,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [
            step.rate / (step.seen)(beta1),
            root_scale(step, beta2),
            (step.rate * step.decay).one_minus()
        ],
        update: |[step_size, root_scale, shrink, _], w, g, [mean, square, c]| {
            let (ratio, [mean, square]) = adam([beta1, beta2, epsilon], root_scale, g, [mean, square]);
            (w * shrink - step_size * ratio, [mean, square, c])
        },
    }

    /// Steps of one size by the sign of an average (Chen et al. 2023), with decoupled weight decay.
    Lion "lion" {
        settings: {
            /// How much of the mean is in the average whose sign is taken.
            beta1: share = 0.9,
            /// Decay of the mean.
            beta2: share = 0.99,
            /// Times rate and weight, taken off the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [1] => &["mean"],
        scalars: |step| [step.rate, (step.rate * step.decay).one_minus()],
        update: |[rate, shrink, ..], w, g, [mean, b, c]| {
            let sign = mean.toward(g, 1.0 - beta1).sign();
            (w * shrink - rate * sign, [mean.toward(g, 1.0 - beta2).flush(), b, c])
        },
    }

    /// Hinton's lecture 6e, with PyTorch's options.
    RmsProp "rmsprop" {
        settings: {
            /// Decay of the mean of squares.
            alpha: share = 0.99,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-8,
            /// Whether epsilon is added below the root instead (Graves 2013).
            epsilon_in_root: flag = false omit "std::ops::Not::not",
            /// How much of the velocity stays.
            momentum: share = 0.0,
            /// Whether the mean gradient is taken off the mean square.
            centered: flag = false,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [1, 2, 3] => match (centered, momentum != 0.0) {
            (false, false) => &["square"],
            (true, false) => &["square", "mean"],
            (false, true) => &["square", "velocity"],
            (true, true) => &["square", "mean", "velocity"],
        },
        scalars: |step| [step.rate, step.decay],
        update: |[rate, decay, ..], w, g, [square, b, c]| {
            let (outside, inside) = if epsilon_in_root { (0.0, epsilon) } else { (epsilon, 0.0) };
            let g = decay.mul_add(w, g);
            let square = (square.times(alpha) + g.squared().times(1.0 - alpha)).flush();
            let (mean, spread) = if centered {
                let mean = b.toward(g, 1.0 - alpha).flush();
                // Rounding may leave a square below the mean's own.
                (mean, (square - mean.squared()).positive_part())
            } else {
                (b, square)
            };
            let change = g / spread.plus(inside).sqrt().plus(outside);
            let change = match centered || outside + inside.sqrt() < LEAST_EPSILON {
                true => change,
                // The gradient's own square is below the root.
                false => change.known_within(1.0 / (1.0 - alpha).sqrt() + 1.0),
            };
            if momentum == 0.0 {
                (w - rate * change, [square, mean, c])
            } else {
                let velocity = w.constant(momentum).mul_add(if centered { c } else { b }, change).flush();
                let moments = if centered { [square, mean, velocity] } else { [square, velocity, c] };
                (w - rate * velocity, moments)
            }
        },
    }

    /// Over the root of the sum of all squares (Duchi et al. 2011).
    Adagrad "adagrad" {
        settings: {
            /// Added to the root in the denominator.
            epsilon: amount = 1e-10,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [1] => &["square"],
        scalars: |step| [step.rate, step.decay],
        update: |[rate, decay, ..], w, g, [square, b, c]| {
            let g = decay.mul_add(w, g);
            let square = (square + g.squared()).flush();
            let change = g / square.sqrt().plus(epsilon);
            let change = match epsilon < LEAST_EPSILON {
                true => change,
                // The gradient's own square is below the root.
                false => change.known_within(2.0),
            };
            (w - rate * change, [square, b, c])
        },
    }

    /// Steps in the weights' own unit (Zeiler 2012).
    Adadelta "adadelta" {
        settings: {
            /// Decay of both means of squares.
            rho: share = 0.9,
            /// Added below both roots.
            epsilon: amount = 1e-6,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["square", "change"],
        scalars: |step| [step.rate, step.decay],
        update: |[rate, decay, ..], w, g, [square, change, c]| {
            let g = decay.mul_add(w, g);
            let square = (square.times(rho) + g.squared().times(1.0 - rho)).flush();
            let made = change.positive_part().plus(epsilon).sqrt() / square.plus(epsilon).sqrt() * g;
            let change = (change.times(rho) + made.squared().times(1.0 - rho)).flush();
            (w - rate * made, [square, change, c])
        },
    }

    /// Adam over the largest gradient of late instead of the mean of squares (Kingma and Ba 2015, section 7.1).
    Adamax "adamax" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the largest.
            beta2: share = 0.999,
            /// Added to each magnitude.
            epsilon: amount = 1e-8,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "largest"],
        scalars: |step| [step.rate / (step.seen)(beta1), step.decay],
        update: |[step_size, decay, ..], w, g, [mean, largest, c]| {
            let g = decay.mul_add(w, g);
            let mean = mean.toward(g, 1.0 - beta1).flush();
            let magnitude = g.abs().plus(epsilon);
            let faded = largest.times(beta2);
            // It is no less than epsilon already, and bounds hear of it.
            let largest = faded.select_greater(magnitude, faded, magnitude).at_least(epsilon);
            (w - step_size * (mean / largest), [mean, largest, c])
        },
    }

    /// Adam with Nesterov's look ahead (Dozat 2016); its momentum is the same at every step.
    NAdam "nadam" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-8,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [
            // The mean is seen with what it will have seen after the next update.
            step.rate.times(beta1) / (step.seen)(beta1).one_minus().times(beta1).one_minus(),
            step.rate.times(1.0 - beta1) / (step.seen)(beta1),
            root_scale(step, beta2),
            step.decay
        ],
        update: |[of_mean, of_gradient, root_scale, decay], w, g, [mean, square, c]| {
            let g = decay.mul_add(w, g);
            let (denominator, [mean, square]) = averages([beta1, beta2, epsilon], root_scale, g, [mean, square]);
            (w - (of_mean * mean + of_gradient * g) / denominator, [mean, square, c])
        },
    }

    /// Adam whose first steps are those of momentum, until the mean of squares has seen enough (Liu et al. 2020).
    RAdam "radam" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-8,
            /// Added to the gradient, times the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [step.rate / (step.seen)(beta1), rectifier(step, beta2), step.decay],
        update: |[step_size, rectifier, decay, _], w, g, [mean, square, c]| {
            let g = decay.mul_add(w, g);
            let mean = mean.toward(g, 1.0 - beta1).flush();
            let square = (square.times(beta2) + g.squared().times(1.0 - beta2)).flush();
            let factor = rectifier.select_positive(rectifier / square.sqrt().plus(epsilon), w.constant(1.0));
            (w - step_size * mean * factor, [mean, square, c])
        },
    }

    /// Adam whose steps are as long as each parameter's weights, times the rate (You et al. 2020).
    Lamb "lamb" {
        settings: {
            /// Decay of the mean.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to the root in the denominator.
            epsilon: amount = 1e-6,
            /// Times the weight, added to Adam's step before its norm is taken.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [
            step.rate,
            step.rate.constant(1.0) / (step.seen)(beta1),
            root_scale(step, beta2),
            step.decay
        ],
        update: |[rate, mean_scale, root_scale, decay], w, g, [mean, square, c]| {
            let (ratio, [mean, square]) = adam([beta1, beta2, epsilon], root_scale, g, [mean, square]);
            (w - rate * decay.mul_add(w, mean_scale * ratio), [mean, square, c])
        },
        direction: {
            let _ = (rate, c);
            let (ratio, _) = adam([beta1, beta2, epsilon], root_scale, g, [mean, square]);
            decay.mul_add(w, mean_scale * ratio)
        },
    }

    /// Second moments of matrices as the product of those of rows and columns (Shazeer and Stern 2018).
    Adafactor "adafactor" {
        settings: {
            /// The n-th square counts n to the power of minus this in their mean.
            decay_power: amount = 0.8,
            /// The largest root mean square of a parameter's directions before they are scaled; 0 for any.
            clip_threshold: amount = 1.0,
            /// Added to every square.
            epsilon: amount = 1e-30,
            /// Whether directions are scaled by the root mean square of their parameter's weights.
            scale_by_weights: flag = true,
            /// The least that they are scaled by then.
            least_scale: amount = 1e-3,
            /// Times rate and weight, taken off the weight.
            weight_decay: amount = 0.0,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [1] => &["square"],
        scalars: |step| [step.rate, (step.rate * step.decay).one_minus()],
        update: |[rate, shrink, ..], w, direction, moments| (w * shrink - rate * direction, moments),
        beside: true,
    }

    /// Momentum whose singular values are made about 1 for matrices (Jordan 2024), AdamW for all else.
    Muon "muon" {
        settings: {
            /// Decay of the mean of matrices.
            momentum: share = 0.95,
            /// Whether the step looks ahead.
            nesterov: flag = true,
            /// Whether matrices' steps are made about as large as AdamW's (Liu et al. 2025).
            match_adam: flag = true,
            /// Decay of the mean of all else.
            beta1: share = 0.9,
            /// Decay of the mean of squares.
            beta2: share = 0.999,
            /// Added to norms of matrices, and to the root in the denominator of all else.
            epsilon: amount = 1e-8,
            /// Times rate and weight, taken off the weight.
            weight_decay: amount = 0.01,
            /// Whether biases and gains of norms are left out of weight decay.
            decay_exempt: flag = false,
        },
        slots: [2] => &["mean", "square"],
        scalars: |step| [step.rate, (step.rate * step.decay).one_minus()],
        update: |[rate, shrink, ..], w, direction, moments| (w * shrink - rate * direction, moments),
        beside: true,
    }
}

/// Below this epsilon what is too small for a normal number is no longer lost beside it.
pub(super) const LEAST_EPSILON: f64 = 1e-12;

/// One over the root of what Adam's mean of squares has seen: one division a weight less.
#[inline(always)]
fn root_scale<A: Arithmetic>(step: &Step<'_, A>, beta2: f64) -> A {
    step.rate.constant(1.0) / (step.seen)(beta2).sqrt()
}

/// The mean over the root of the mean of squares, and both.
#[inline(always)]
fn adam<A: Arithmetic>(settings: [f64; 3], root_scale: A, g: A, moments: [A; 2]) -> (A, [A; 2]) {
    let (denominator, [mean, square]) = averages(settings, root_scale, g, moments);
    (mean / denominator, [mean, square])
}

/// The root of the mean of squares, and that mean with the mean before it.
///
/// The shares of what is new are taken from 1 before rounding, since the difference has far fewer digits
/// after.
#[inline(always)]
fn averages<A: Arithmetic>(
    [beta1, beta2, epsilon]: [f64; 3],
    root_scale: A,
    g: A,
    [mean, square]: [A; 2],
) -> (A, [A; 2]) {
    let mean = mean.toward(g, 1.0 - beta1).flush();
    let square = (square.times(beta2) + g.squared().times(1.0 - beta2)).flush();
    (square.sqrt().mul_add(root_scale, g.constant(epsilon)), [mean, square])
}

/// What the mean over the root of the mean of squares is multiplied by, that root as it is: 0 as long as the mean of
/// squares has seen so little that its variance is not known.
#[inline(always)]
fn rectifier<A: Arithmetic>(step: &Step<'_, A>, beta2: f64) -> A {
    // How many gradients the mean is of, in the end and by now.
    let most = 2.0 / (1.0 - beta2) - 1.0;
    let seen = (step.seen)(beta2);
    let length = step.number.constant(most) - step.number.times(2.0) * seen.one_minus() / seen;
    let share = length.plus(-4.0) * length.plus(-2.0) / length.times((most - 4.0) * (most - 2.0) / most);
    let zero = length.constant(0.0);
    length.select_greater(length.constant(5.0), (share.positive_part() * seen).sqrt(), zero)
}

impl Default for Optimizer {
    /// AdamW as it comes.
    fn default() -> Self {
        Config::AdamW(rows::AdamW::default()).into()
    }
}

impl Optimizer {
    /// Gradient descent without momentum.
    pub fn sgd() -> Self {
        Config::Sgd(rows::Sgd::default()).into()
    }

    /// Adam as it comes.
    pub fn adam() -> Self {
        Config::Adam(rows::Adam::default()).into()
    }

    /// RMSprop as it comes.
    pub fn rms_prop() -> Self {
        Config::RmsProp(rows::RmsProp::default()).into()
    }

    /// How strongly weights decay; 0 for a rule without decay.
    pub(in crate::ops) fn weight_decay(&self) -> f64 {
        self.setting("weight_decay").unwrap_or(0.0)
    }

    /// Whether each parameter's rate goes by its norm, which [`TrustRatio`](crate::ops::TrustRatio) tells.
    pub(crate) fn goes_by_norms(&self) -> bool {
        struct ByNorms;
        impl RuleVisitor for ByNorms {
            type Output = bool;
            fn visit<R: Rule>(self, _: R) -> bool {
                R::BY_NORMS
            }
        }
        self.visit(ByNorms)
    }

    /// Whether [`Directions`](crate::ops::Directions) are made beside its update.
    pub(crate) fn is_made_beside(&self) -> bool {
        struct Beside;
        impl RuleVisitor for Beside {
            type Output = bool;
            fn visit<R: Rule>(self, _: R) -> bool {
                R::MADE_BESIDE
            }
        }
        self.visit(Beside)
    }

    /// Whether biases and gains of norms are left out of weight decay.
    pub fn decay_exempt(&self) -> bool {
        self.setting("decay_exempt").is_some_and(|exempt| exempt != 0.0)
    }
}
