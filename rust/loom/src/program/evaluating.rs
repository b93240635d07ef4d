//! Expressions in a program: their stages one after another.

use super::{Builder, Value};
use crate::ops::expression::{Plan, Stage};
use crate::{Error, Result};

impl Builder {
    /// Pushes the stages of a plan whose first numbers are given, where they are read; its results, and the sums that
    /// its gradients need.
    ///
    /// # Errors
    /// [`Error::Internal`] for a number that is read and neither given nor made.
    pub(crate) fn evaluate(
        &mut self,
        plan: &Plan,
        given: Vec<Option<Value>>,
        label: &'static str,
    ) -> Result<(Vec<Value>, Vec<Value>)> {
        let mut values = given;
        values.resize(plan.count, None);
        let known = |values: &[Option<Value>], number: usize| {
            let value = values.get(number).copied().flatten();
            value.ok_or_else(|| Error::Internal(format!("number {number} of an expression is not there")))
        };
        for stage in &plan.stages {
            match stage {
                Stage::Evaluate(op, reads, writes, shape) => {
                    let reads: Vec<Value> =
                        reads.iter().map(|read| known(&values, *read)).collect::<Result<_>>()?;
                    let labels = writes.iter().map(|_| (label, shape.clone()));
                    for (write, value) in writes.iter().zip(self.apply_list(op.clone(), &reads, labels)) {
                        values[*write] = Some(value);
                    }
                }
                Stage::Sum(op, read, write, shape) => {
                    let read = known(&values, *read)?;
                    values[*write] = Some(self.apply(op.clone(), &[read], "sum", shape.clone()));
                }
            }
        }
        let all = |numbers: &[usize]| -> Result<Vec<Value>> {
            numbers.iter().map(|number| known(&values, *number)).collect()
        };
        Ok((all(&plan.results)?, all(&plan.sums)?))
    }
}
