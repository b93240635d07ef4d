//! The network as a table.

use super::morph::{held_in, weights_of};
use super::{Combine, Coordinates, Network, PlacedLayer};
use crate::Result;
use crate::tensor::Shape;
use crate::weights::WeightStore;

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
    /// How many of them an optimizer may move: none of a frozen layer, or once their masters were dropped.
    pub trainable: usize,
    /// Whether the masters of what is packed were dropped.
    pub dropped: bool,
    /// The numeric type of its weights; where they have several, or others were chosen by name, each type with
    /// the parameters that are held in it.
    pub dtype: String,
    /// Bytes of what the forward pass reads.
    pub bytes: usize,
}

/// One link of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRow {
    /// The cell whose output is handed over.
    pub source: Coordinates,
    /// The cell that gets it.
    pub target: Coordinates,
    /// What becomes of it there.
    pub combine: Combine,
    /// The axis along which values are put together.
    pub axis: Option<usize>,
    /// Extents of the target's input once it has arrived; of a context, its own.
    pub shape: Vec<usize>,
}

impl Network {
    /// Every layer with its output shape, parameters, numeric type and bytes. No weights are made for it.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses.
    pub fn summary_rows(&self) -> Result<Vec<SummaryRow>> {
        if !self.built {
            return self.outline()?.summary_rows();
        }
        Ok(self.layers().map(|placed| self.summary_row(placed)).collect())
    }

    fn summary_row(&self, placed: &PlacedLayer) -> SummaryRow {
        let path = placed.path.indices();
        // What it shares counts where it belongs.
        let own = placed.store.filter(|_| !placed.is_tied());
        let store = own.map(|store| &self.registry.stores[store]);
        let moved = |store: &WeightStore| {
            let parameters = store.parameters().iter();
            parameters
                .filter(|info| !placed.frozen.iter().any(|name| *name == info.name))
                .map(|info| info.len())
                .sum()
        };
        let trained = own.filter(|own| self.trained_stores().any(|(store, _)| store == *own));
        let trained = trained.map(|own| &self.registry.stores[own]).filter(|store| !store.is_dropped());
        let adapters: Vec<&WeightStore> =
            placed.adapter_stores().map(|store| &self.registry.stores[store]).collect();
        let beside =
            |count: fn(&WeightStore) -> usize| adapters.iter().map(|store| count(store)).sum::<usize>();
        let moved_beside: usize = placed
            .trained_stores()
            .filter(|store| placed.store != Some(*store))
            .map(|store| self.registry.stores[store].parameter_count())
            .sum();
        SummaryRow {
            at: [path[0], path[1], path[2], path[3]],
            kind: placed.layer.kind(),
            output_shape: placed.output_shape.as_deref().unwrap_or_default().to_vec(),
            parameters: store.map_or(0, |store| store.parameter_count())
                + beside(WeightStore::parameter_count),
            trainable: trained.map_or(0, moved) + moved_beside,
            dropped: store.is_some_and(|store| store.is_dropped()),
            dtype: store.map_or("-".into(), |store| self.types_of(placed, store)),
            bytes: store.map_or(0, |store| store.active_bytes()) + beside(WeightStore::active_bytes),
        }
    }

    /// The type of the weights of a layer, or each type with what is held in it.
    fn types_of(&self, placed: &PlacedLayer, store: &WeightStore) -> String {
        let all = (0..store.parameters().len()).map(|index| (index, held_in(store, index, self.precision)));
        let all: Vec<(usize, String)> = all.collect();
        let named = |index: usize| {
            let name = &store.parameters()[index].name;
            placed.numerics.parameters.iter().any(|(known, _)| known == name)
        };
        let weights = weights_of(store);
        let counted = |index: &usize| weights.contains(index) || named(*index);
        let mut types = all.iter().filter(|(index, _)| counted(index)).map(|(_, held)| held);
        match types.next() {
            Some(first) if types.all(|other| other == first) => return first.clone(),
            _ => {}
        }
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for (index, held) in &all {
            let name = &*store.parameters()[*index].name;
            match groups.iter_mut().find(|(known, _)| known == held) {
                Some((_, names)) => names.push(name),
                None => groups.push((held, vec![name])),
            }
        }
        let groups: Vec<String> =
            groups.into_iter().map(|(held, names)| format!("{held}: {}", names.join(", "))).collect();
        groups.join("; ")
    }

    /// Every link, by its target in the order data flows, with what its target's input becomes.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses.
    pub fn link_rows(&self) -> Result<Vec<LinkRow>> {
        if !self.built {
            return self.outline()?.link_rows();
        }
        let made = |cell: &Vec<PlacedLayer>| cell.last().and_then(|placed| placed.output_shape.clone());
        let mut known: Vec<Option<Shape>> = self.cells.iter().map(made).collect();
        let mut rows = Vec::new();
        // Once more, for a link that points back from an empty cell, which hands on what came to it.
        for _ in 0..2 {
            rows.clear();
            let mut shape = self.input_shape.clone();
            for (number, cell) in self.cells.iter().enumerate() {
                for (source, link) in self.links_to(number)? {
                    let Some(linked) = &known[source] else { continue };
                    let before = shape.clone();
                    shape = link.combined_shape(&before, linked)?;
                    let joined =
                        before.iter().zip(shape.iter()).position(|(before, joined)| before != joined);
                    rows.push(LinkRow {
                        source: link.source,
                        target: link.target,
                        combine: link.combine,
                        axis: joined,
                        shape: if link.combine == Combine::Context { linked } else { &shape }.to_vec(),
                    });
                }
                if let Some(made) = made(cell) {
                    shape = made;
                }
                known[number] = Some(shape.clone());
            }
        }
        Ok(rows)
    }

    /// The same as text, with totals.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses.
    pub fn summary(&self) -> Result<String> {
        if !self.built {
            return self.outline()?.summary();
        }
        let rows = self.summary_rows()?;
        let elsewhere = self.output_shapes_elsewhere()?;
        let header = ["cell", "layer", "output shape", "parameters", "type", "bytes"].map(String::from);
        let mut table = vec![header];
        table.extend(rows.iter().enumerate().map(|(number, row)| {
            let other = elsewhere.get(number);
            let [depth, line, column, layer] = row.at;
            let frozen = match row.parameters - row.trainable {
                0 => String::new(),
                _ if row.dropped => " (dropped)".into(),
                all if all == row.parameters => " (frozen)".into(),
                some => format!(" ({} frozen)", thousands(some)),
            };
            [
                format!("({depth}, {line}, {column})"),
                format!("{layer} {}", row.kind),
                told(&row.output_shape, other),
                format!("{}{frozen}", thousands(row.parameters)),
                row.dtype.clone(),
                thousands(row.bytes),
            ]
        }));
        // Numbers end in one column, words start in one.
        let mut lines = aligned(&table, &[3, 5]);
        let links = self.link_rows()?;
        let arrow = |cells: [Coordinates; 2]| cells.map(|cell| Shape::from(cell).to_string()).join(" -> ");
        let links: Vec<[String; 3]> = links
            .iter()
            .map(|row| {
                let combine = match (row.combine, row.axis) {
                    (Combine::Add, _) => "add".into(),
                    (Combine::Context, _) => "context".into(),
                    (Combine::Multiply, _) => "multiply".into(),
                    (Combine::Replace, _) => "replace".into(),
                    (Combine::Concat, axis) => format!("concat, axis {}", axis.unwrap_or_default()),
                };
                [
                    format!("link {}", arrow([row.source, row.target])),
                    combine,
                    Shape::new(row.shape.clone()).to_string(),
                ]
            })
            .collect();
        let links = aligned(&links, &[]);
        let width = lines.iter().chain(&links).map(|line| line.chars().count()).max().unwrap_or(0);
        let rule = "-".repeat(width);
        lines.insert(1, rule.clone());
        if !links.is_empty() {
            lines.push(rule.clone());
            lines.extend(links);
        }
        lines.push(rule);
        let parameters: usize = rows.iter().map(|row| row.parameters).sum();
        let trainable: usize = rows.iter().map(|row| row.trainable).sum();
        let bytes: usize = rows.iter().map(|row| row.bytes).sum();
        lines.push(format!(
            "{} parameters, {} trainable, {} bytes of weights",
            thousands(parameters),
            thousands(trainable),
            thousands(bytes)
        ));
        Ok(lines.join("\n"))
    }
}

/// Rows of cells as lines, padded to columns; those of these numbers on the left.
fn aligned<const N: usize>(table: &[[String; N]], numbers: &[usize]) -> Vec<String> {
    let widths: [usize; N] =
        std::array::from_fn(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            match numbers.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    table.iter().map(line).collect()
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

/// Extents, with "any" for those that other inputs would change.
fn told(shape: &[usize], other: Option<&Shape>) -> String {
    let Some(other) = other else { return Shape::new(shape.to_vec()).to_string() };
    let extent = |(one, two): (&usize, &usize)| if one == two { one.to_string() } else { "any".into() };
    let extents: Vec<String> = shape.iter().zip(other.iter()).map(extent).collect();
    format!("({}{})", extents.join(", "), if extents.len() == 1 { "," } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::layers::{Dense, Flatten, Gru, InitialState, LayerNorm};
    use crate::network::Link;

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
    fn summary_tells_links_and_what_arrives() -> Result<()> {
        let mut network = Network::new([3, 4], [1, 1, 5])?;
        let link = |from: usize, to: usize, combine: Combine, axis: Option<usize>| Link {
            source: [0, 0, from],
            target: [0, 0, to],
            combine,
            axis,
        };
        network.add([0, 0, 0], Dense::new(4))?;
        network.add([0, 0, 2], Dense::new(6))?;
        network.add([0, 0, 3], Gru { initial_state: InitialState::Context, ..Gru::new(12) })?;
        network.link(link(0, 2, Combine::Add, None))?;
        network.link(link(2, 3, Combine::Concat, None))?;
        network.link(link(0, 1, Combine::Concat, Some(0)))?;
        network.link(link(0, 3, Combine::Context, None))?;
        let refused = network.summary().unwrap_err().to_string();
        assert!(refused.contains("adds (3, 4) to the cell's input (6, 4)"), "{refused}");
        network.links.retain(|link| link.combine != Combine::Add);
        network.link(link(1, 2, Combine::Add, None))?;
        network.built = false;
        let text = network.summary()?;
        for line in [
            "link (0, 0, 0) -> (0, 0, 1)  concat, axis 0  (6, 4)",
            "link (0, 0, 1) -> (0, 0, 2)  add             (6, 4)",
            "link (0, 0, 2) -> (0, 0, 3)  concat, axis 1  (6, 12)",
            "link (0, 0, 0) -> (0, 0, 3)  context         (3, 4)",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        Ok(())
    }

    #[test]
    fn summary_tells_what_no_optimizer_moves() -> Result<()> {
        let mut network = Network::new([4], [1, 1, 1])?;
        network.add([0, 0, 0], Dense::new(3))?;
        network.add([0, 0, 0], LayerNorm::default())?;
        network.set_frozen([0, 0, 0], 0, "bias", true)?;
        let text = network.summary()?;
        assert!(text.contains("15 (3 frozen)") && text.contains("21 parameters, 18 trainable"), "{text}");
        network.morph(DType::Int8)?;
        network.drop_masters()?;
        let text = network.summary()?;
        assert!(text.contains("15 (dropped)  int8"), "{text}");
        assert!(text.contains("1 layer_norm  (3,)                     6  float32"), "{text}");
        assert!(text.contains("21 parameters, 6 trainable"), "{text}");
        network.unpack_where(|_| true)?;
        assert!(network.summary()?.contains("21 parameters, 18 trainable"));
        Ok(())
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
