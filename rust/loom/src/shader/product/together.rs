//! Several products of few rows that share their left operand, as one dispatch: a layer's projections in inference
//! step by step, where each dispatch takes longer than what it computes.

use super::cut::Limits;
use super::left_form::LeftForm;
use super::plan::Problem;
use super::record::{Operands, streamed};
use super::stream::{Stream, Weight, row_groups};
use crate::shader::{Recorder, Shader};
use crate::{Error, Result};

/// Products of one A, as it is after `form`, each with its own B and C.
#[derive(Clone, Debug)]
pub struct Together<'a> {
    /// What becomes of A where it is loaded.
    pub form: LeftForm<'a>,
    /// The products: of the same rows and depth, and with the same A.
    pub products: Vec<(Problem<'a>, Operands<'a>)>,
}

impl Together<'_> {
    /// How the work is shared out, and the weights; none where not all of them can be read as they lie.
    fn plan(&self, limits: &Limits) -> Option<(Stream, Vec<Weight>)> {
        let (first, _) = self.products.first()?;
        let weights: Vec<Weight> =
            self.products.iter().map(|(problem, _)| problem.streamed()).collect::<Option<_>>()?;
        let columns = self.products.iter().map(|(problem, _)| problem.columns).sum();
        let (groups, rows) = row_groups(first.rows);
        let shape = weights.first()?.shape([rows, columns, first.depth], groups, limits.threads);
        let fits = |((problem, _), weight): (&(Problem<'_>, Operands<'_>), &Weight)| {
            problem.depth > 0
                && (problem.rows, problem.depth) == (first.rows, first.depth)
                && weight.takes(&shape, problem.columns, problem.depth)
        };
        self.products.iter().zip(&weights).all(fits).then_some((shape, weights))
    }

    /// Whether they can be made by one dispatch.
    pub fn fits(&self, limits: &Limits) -> bool {
        self.plan(limits).is_some()
    }

    /// Records the dispatch.
    ///
    /// # Errors
    /// [`Error::Internal`] where they do not [fit](Self::fits), and as [`Problem::record`].
    pub fn record(&self, recorder: &mut Recorder<'_>, limits: &Limits) -> Result<()> {
        let Some((shape, weights)) = self.plan(limits) else {
            return Err(Error::Internal("products were recorded together that do not fit".into()));
        };
        let subgroup = recorder.subgroup_threads;
        let kernels = self.products.iter().zip(weights).map(|((problem, operands), weight)| {
            streamed(problem, operands, (shape, weight), self.form, subgroup)
        });
        Shader::side_by_side(
            recorder,
            "products.stream",
            &["sums", "squared"],
            kernels.collect::<Result<_>>()?,
        )
    }
}
