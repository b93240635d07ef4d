//! The network as a table.

use super::{Network, PlacedLayer};
use crate::Result;
use crate::dtype::DType;
use std::fmt::Write;

/// One line of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// Depth, row, column and place in the cell.
    pub at: [usize; 4],
    /// The layer's kind.
    pub kind: &'static str,
    /// Extents of its output.
    pub output_shape: Vec<usize>,
    /// How many parameters it has.
    pub parameters: usize,
    /// Whether an optimizer may move them.
    pub trainable: bool,
    /// The numeric type of its weights.
    pub dtype: String,
    /// Bytes of what the forward pass reads.
    pub bytes: usize,
}

impl Network {
    /// Every layer with its output shape, parameters, numeric type and bytes.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses.
    pub fn summary_rows(&mut self) -> Result<Vec<SummaryRow>> {
        self.build()?;
        Ok(self
            .layers()
            .map(|placed| {
                let path = placed.path.indices();
                let store = placed.store.map(|store| &self.registry.stores[store]);
                SummaryRow {
                    at: [path[0], path[1], path[2], path[3]],
                    kind: placed.layer.kind(),
                    output_shape: placed.output_shape.as_deref().unwrap_or_default().to_vec(),
                    parameters: store.map_or(0, |store| store.parameter_count()),
                    trainable: placed.trainable,
                    dtype: store.map_or("-".into(), |_| self.types_of(placed)),
                    bytes: store.map_or(0, |store| store.active_bytes()),
                }
            })
            .collect())
    }

    /// The type that a layer computes from, and those that some of its parameters have by name.
    fn types_of(&self, placed: &PlacedLayer) -> String {
        let name = |dtype: Option<DType>| dtype.map_or(self.precision.to_string(), |dtype| dtype.to_string());
        let mut types = vec![name(placed.numerics.layer.dtype)];
        for (_, chosen) in &placed.numerics.parameters {
            let named = name(chosen.dtype);
            if !types.contains(&named) {
                types.push(named);
            }
        }
        types.join(", ")
    }

    /// The same as text, with totals.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses.
    pub fn summary(&mut self) -> Result<String> {
        let rows = self.summary_rows()?;
        let header = ["cell", "layer", "output shape", "parameters", "type", "bytes"].map(String::from);
        let mut table = vec![header];
        table.extend(rows.iter().map(|row| {
            let [depth, line, column, layer] = row.at;
            let frozen = if row.parameters > 0 && !row.trainable { " (frozen)" } else { "" };
            [
                format!("({depth}, {line}, {column})"),
                format!("{layer} {}", row.kind),
                crate::Shape::new(row.output_shape.clone()).to_string(),
                format!("{}{frozen}", thousands(row.parameters)),
                row.dtype.clone(),
                thousands(row.bytes),
            ]
        }));
        let widths: Vec<usize> = (0..6)
            .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * 5);
        let mut text = String::new();
        for (number, row) in table.iter().enumerate() {
            // Numbers end in one column, words start in one.
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    3 | 5 => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                })
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
            if number == 0 {
                let _ = writeln!(text, "{rule}");
            }
        }
        let parameters: usize = rows.iter().map(|row| row.parameters).sum();
        let trainable: usize = rows.iter().filter(|row| row.trainable).map(|row| row.parameters).sum();
        let bytes: usize = rows.iter().map(|row| row.bytes).sum();
        let _ = writeln!(text, "{rule}");
        let _ = write!(
            text,
            "{} parameters, {} trainable, {} bytes of weights",
            thousands(parameters),
            thousands(trainable),
            thousands(bytes)
        );
        Ok(text)
    }
}

/// `1,234,567`
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Dense, Flatten};

    #[test]
    fn summary_lists_layers_and_totals() -> Result<()> {
        let mut network = Network::new([2, 3], [1, 1, 2])?;
        network.add([0, 0, 0], Flatten {})?;
        network.add([0, 0, 1], Dense::new(4))?;
        network.set_trainable([0, 0, 1], 0, false)?;
        let text = network.summary()?;
        assert!(text.contains("(0, 0, 1)  0 dense    (4,)          28 (frozen)  float32"), "{text}");
        assert!(text.ends_with("28 parameters, 0 trainable, 112 bytes of weights"), "{text}");
        Ok(())
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
