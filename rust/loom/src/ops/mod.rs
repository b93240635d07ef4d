//! The primitive operations: one folder each, holding what it computes, its kernels for processors and for
//! GPUs, and its tests.
//!
//! The set is closed but for [`Custom`]; layers lower to these and nothing else.

pub mod adaptive_max;
mod args;
pub mod attention;
pub mod axis_sum;
pub mod bias;
pub mod combination;
pub mod concat;
mod constants;
pub mod convolution;
pub mod custom;
pub mod decode;
pub mod decomposed;
mod directions;
pub mod distance;
mod draws;
pub mod dropout;
mod element_loops;
pub mod encode;
pub mod entmax;
pub mod expert_product;
pub mod expression;
pub mod foresee;
pub mod gate;
pub mod gather;
mod geometry;
pub mod gradient_clip;
pub mod gumbel;
pub mod labels;
pub mod loss;
pub mod mask;
pub mod masked_softmax;
mod matrix_sums;
pub mod measure;
pub mod mix;
pub mod narrow;
pub mod nested_softmax;
pub mod next_step;
pub mod noise;
pub mod normalize;
pub mod one_hot;
mod operation;
pub mod penalty;
pub mod permute;
pub mod pointwise;
pub mod pool;
pub mod positions;
pub mod prelu;
pub mod product;
pub mod product_update;
pub mod recurrent;
mod reduced_axis;
pub mod resample;
pub mod rotary;
mod rounding;
pub mod route;
mod segment;
pub mod softmax;
pub mod spectral_norm;
pub mod step_weights;
pub mod sum;
pub mod target_propagation;
#[cfg(test)]
pub(crate) mod testing;
pub mod update;
pub mod weight_norm;
pub mod whole_batch;

pub use adaptive_max::AdaptiveMax;
pub(crate) use args::part;
pub use args::{Args, MAX_READS, MAX_WRITES, RowPlace, StepValues, View};
pub use attention::{Attention, CacheAppend, CacheType, Keep, Kept};
pub use axis_sum::AxisSum;
pub use bias::{BiasAdd, BiasGradient};
pub use combination::{Combination, Term};
pub use concat::{Concat, Slice};
pub use convolution::Convolution;
pub use custom::{Custom, CustomExtents, CustomOperation, CustomWgsl};
pub use decode::Decode;
pub use decomposed::{OutputLengths, WithLengths};
pub use directions::Directions;
pub use distance::Distance;
pub use dropout::Dropout;
pub use encode::Encode;
pub use entmax::Entmax;
pub use expert_product::ExpertProduct;
pub use expression::Evaluate;
pub use foresee::{Foresee, Foresight};
pub use gate::Gate;
pub use gather::Gather;
pub use geometry::Geometry;
pub use gradient_clip::{ClampGradient, ClipFactor, ScaleGradient, SquaredSum, SquaredSums};
pub use gumbel::GumbelNoise;
pub use labels::Labels;
pub use loss::{Loss, LossFunction};
pub use mask::{KeepSteps, LengthMask, StepMask};
pub use masked_softmax::{MaskedSoftmax, TimeMask};
pub use measure::{Collect, Judge, Measure};
pub use mix::{Mix, MixPart, Scale};
pub use narrow::{Narrow, ShortFloat, Widen};
pub use nested_softmax::NestedSoftmax;
pub use next_step::{Change, Choose, Draw, Recall, Sampling};
pub use noise::GaussianNoise;
pub use normalize::{ChannelMoments, ChannelNormalize, GainGradient, Normalize, RunningAverage};
pub use one_hot::OneHot;
pub use operation::{Direction, Operation};
pub use penalty::{Penalized, Penalty};
pub use permute::Permute;
pub use pointwise::Pointwise;
pub use pool::Pool;
pub use positions::Positions;
pub use prelu::Prelu;
pub use product::{LeftSide, Product, Products};
pub use product_update::ProductUpdate;
pub use recurrent::Recurrent;
pub use resample::{Resample, Resampling};
pub use rotary::{PairLayout, Rotary};
pub use route::Route;
pub use softmax::Softmax;
pub use spectral_norm::SpectralNorm;
pub use step_weights::{PooledSteps, StepWeights};
pub use sum::{Added, Sum, Summed};
pub use target_propagation::{AbsoluteSums, MeanTarget, WeightProduct};
pub use update::{TrustRatio, Update};
pub use weight_norm::WeightNorm;
pub use whole_batch::WholeBatch;

use crate::Result;
use crate::simd::Real;
use std::fmt;

macro_rules! operations {
    ($($name:ident: $tolerance:literal),* $(,)?) => {
        /// Any operation.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is the operation of that name")]
        pub enum Op {
            $($name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Self {
                Op::$name(op)
            }
        })*

        impl Op {
            /// Computes on the CPU.
            pub fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
                match self {
                    $(Op::$name(op) => op.run::<T>(args),)*
                }
            }

            /// Adds the dispatches that compute it on a GPU.
            ///
            /// # Errors
            /// As [`GpuOperation::record`](crate::shader::GpuOperation::record).
            pub fn record(&self, recorder: &mut crate::shader::Recorder<'_>) -> Result<()> {
                match self {
                    $(Op::$name(op) => crate::shader::GpuOperation::record(op, recorder),)*
                }
            }

            /// How far results on a GPU may be from the CPU's, as a fraction of the largest magnitude of
            /// the result (or of 1, where all are smaller).
            ///
            /// Sums in another order differ by about the root of the summed extent times 6e-8; functions
            /// by what drivers' exp, log and sqrt are off, a few units in the last place.
            #[cfg(all(test, feature = "gpu"))]
            pub(crate) fn tolerance(&self) -> f64 {
                match self {
                    $(Op::$name(_) => $tolerance,)*
                }
            }
        }

        impl fmt::Display for Op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Op::$name(op) => fmt::Display::fmt(op, f),)*
                }
            }
        }
    };
}

impl Op {
    /// The same in mixed precision: with operands of products rounded to 16 bits, sums as they are.
    ///
    /// Operations without products are as before.
    #[must_use]
    pub fn into_mixed(mut self) -> Self {
        match &mut self {
            Op::Product(op) => op.mixed = true,
            Op::ProductUpdate(op) => op.product.mixed = true,
            Op::Convolution(op) => op.mixed = true,
            Op::Attention(op) => op.mixed = true,
            _ => {}
        }
        self
    }
}

// Every operation, and how far its results on a GPU may be from the CPU's.
operations! {
    Product: 2e-5,
    ProductUpdate: 2e-5,
    BiasAdd: 1e-6,
    BiasGradient: 5e-6,
    AxisSum: 5e-6,
    Penalty: 2e-6,
    Convolution: 2e-5,
    Pool: 2e-6,
    Resample: 2e-6,
    AdaptiveMax: 0.0,
    Recurrent: 2e-5,
    Pointwise: 1e-5,
    Softmax: 1e-5,
    NestedSoftmax: 1e-5,
    MaskedSoftmax: 1e-5,
    Entmax: 1e-5,
    Prelu: 1e-6,
    GumbelNoise: 1e-5,
    GaussianNoise: 1e-5,
    Distance: 5e-6,
    Normalize: 1e-5,
    ChannelMoments: 1e-5,
    ChannelNormalize: 1e-5,
    GainGradient: 1e-5,
    RunningAverage: 2e-6,
    Dropout: 1e-6,
    Sum: 5e-6,
    Narrow: 0.0,
    Widen: 0.0,
    Concat: 0.0,
    Slice: 0.0,
    Mix: 5e-6,
    Scale: 5e-6,
    Permute: 0.0,
    LengthMask: 0.0,
    StepMask: 0.0,
    KeepSteps: 0.0,
    Loss: 1e-5,
    SquaredSum: 5e-6,
    ClipFactor: 2e-6,
    ScaleGradient: 2e-6,
    ClampGradient: 1e-6,
    TrustRatio: 5e-6,
    Directions: 2e-5,
    Update: 2e-6,
    Foresee: 0.0,
    Foresight: 0.0,
    Encode: 1e-6,
    Decode: 1e-6,
    Custom: 1e-6,
    Attention: 2e-5,
    CacheAppend: 0.0,
    Rotary: 5e-6,
    Gather: 5e-6,
    Gate: 1e-5,
    Positions: 5e-6,
    Combination: 5e-6,
    OneHot: 0.0,
    Labels: 0.0,
    Choose: 0.0,
    Draw: 0.0,
    Recall: 0.0,
    StepWeights: 1e-6,
    Route: 1e-5,
    ExpertProduct: 2e-5,
    Evaluate: 2e-5,
    Measure: 5e-6,
    Collect: 5e-6,
    Judge: 5e-6,
    AbsoluteSums: 5e-6,
    WeightProduct: 2e-5,
    MeanTarget: 2e-6,
    WholeBatch: 1e-6,
    WeightNorm: 1e-5,
    SpectralNorm: 1e-5,
    OutputLengths: 1e-5,
    WithLengths: 1e-6,
}
