//! The gradient of a bias's table on a GPU: sums over distances, and of these over the distances of each bucket.

use super::{Attention, PositionBias};
use crate::Result;
use crate::shader::{Recorder, Shader};

impl Attention {
    /// Records what each row adds to the table's gradient; `with_operands` declares what all gradients read.
    pub(super) fn table_gradient(
        &self,
        recorder: &mut Recorder<'_>,
        with_operands: impl FnOnce(Shader, &mut Recorder<'_>) -> Result<Shader>,
    ) -> Result<()> {
        let Some(buckets) = self.bias.as_ref().and_then(PositionBias::buckets) else { return Ok(()) };
        let (rows, zero) = buckets.rows();
        let distances = rows.len();
        let all = recorder.rows() * self.heads * distances;
        let sums = recorder.scratch(all)?;
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &[]);
        let shader = self.shader(" distances", include_str!("distances.wgsl"), functions);
        with_operands(shader, recorder)?
            .write("sums", "f32", sums.clone())
            .number("queries", self.queries)
            .number("keys", self.keys)
            .number("distances", distances)
            .number("zero", zero)
            .number("all", all)
            .elements(recorder, all)?;
        let gradient = recorder.write(3)?;
        let elements = gradient.elements;
        Shader::new("attention.buckets", include_str!("buckets.wgsl"))
            .constant("HEADS", self.heads)
            .constant("BUCKETS", buckets.count)
            .read("sums", "f32", sums)
            .read("buckets", "u32", recorder.table(rows)?)
            .write("dtable", "f32", gradient)
            .number("distances", distances)
            .number("elements", elements)
            .elements(recorder, elements)
    }
}
