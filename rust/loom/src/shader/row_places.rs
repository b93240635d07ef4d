//! Where each row of a batch stands, as kernels of sessions see it.

use super::declaration::Shader;
use super::operand::Operand;
use super::recorder::Recorder;

impl Shader {
    /// Puts the functions `position(row)`, how many steps of a row's sequence have been seen before this call, and
    /// `sequence(row)`, the number of that sequence among those of which something is carried, where the text has
    /// `#{PLACES}`. What is not `positioned` stands at the beginning of its own sequence.
    pub(crate) fn row_places(self, recorder: &Recorder<'_>, positioned: bool) -> Self {
        self.placed(recorder.row_places.clone(), positioned)
    }

    /// The same with the table of where rows are, if each is at a place of its own.
    pub(crate) fn placed(self, table: Option<Operand>, positioned: bool) -> Self {
        let (sequence, position) = match (&table, positioned) {
            (_, false) => ("row", "0u"),
            (None, true) => ("row", "steps[constants.step].position"),
            (Some(_), true) => ("row_places[row].x", "row_places[row].y + steps[constants.step].position"),
        };
        let text = format!(
            "fn sequence(row: u32) -> u32 {{ return {sequence}; }}\n\
             fn position(row: u32) -> u32 {{ return {position}; }}"
        );
        let shader = self.section("PLACES", text);
        match table.filter(|_| positioned) {
            Some(table) => shader.read("row_places", "vec2<u32>", table),
            None => shader,
        }
    }
}
