//! What watched steps have shown, step after step.

use super::watch::Watch;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};

/// One layer's figures in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerMeasures {
    /// How far its output was from its target: the root of the mean square, or that square.
    pub gap: f64,
    /// (1 + cosine of output and target) / 2.
    pub alignment: f64,
    /// The output's norm over the input's.
    pub gain: f64,
    /// Its share of what there is to pass on: gain or alignment, scaled.
    pub link_budget: f64,
    /// The gap of a recurrent layer's cell state; NaN elsewhere.
    pub cell_gap: f64,
    /// How far its feedback map was from reconstructing its input; NaN where it has none.
    pub reconstruction: f64,
}

/// The figures of some steps, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasureHistory {
    /// Every how many steps one is kept, by now.
    pub stride: u64,
    /// The numbers of the steps, counted from the start of the training.
    pub steps: Vec<u64>,
    /// Their headers and figures, one after another.
    pub records: Vec<f64>,
}

/// What watched steps have shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// How many layers there are in cells.
    pub layers: usize,
    /// The names of the layers inside them that are measured, too, as in a state dict: their figures come behind
    /// those of the layers of cells.
    pub inner: Vec<String>,
    /// How many steps were watched.
    pub steps: u64,
    /// The loss of each.
    pub losses: Vec<f64>,
    /// The numbers of the steps that exploded.
    pub exploded: Vec<u64>,
    /// Header and figures of the newest step.
    pub newest: Vec<f64>,
    /// Those of earlier ones, where they are kept.
    pub history: MeasureHistory,
}

impl Measures {
    /// Of a network of this many layers, and of layers of these names inside them, before any step.
    pub(crate) fn new(layers: usize, inner: Vec<String>) -> Self {
        Self { layers, inner, ..Self::default() }
    }

    /// How many layers have figures, those inside others with them.
    pub fn rows(&self) -> usize {
        self.layers + self.inner.len()
    }

    fn memory(&self) -> MeasureMemory {
        MeasureMemory { layers: self.layers, inner: self.inner.len(), norms: 0 }
    }

    /// Takes note of a step.
    pub(crate) fn note(&mut self, watch: &Watch, loss: f64, kept: &[f64], exploded: bool) {
        let step = self.steps;
        self.steps += 1;
        self.losses.push(loss);
        if exploded {
            self.exploded.push(step);
        }
        self.newest.clear();
        self.newest.extend_from_slice(kept);
        let Some(stride) = watch.history else { return };
        let history = &mut self.history;
        history.stride = history.stride.max(stride);
        if !step.is_multiple_of(history.stride) {
            return;
        }
        if history.steps.len() >= watch.history_limit {
            history.thin(kept.len());
            if !step.is_multiple_of(history.stride) {
                return;
            }
        }
        history.steps.push(step);
        history.records.extend_from_slice(kept);
    }

    /// The newest step, taken for calm, has exploded after all: by what its update would have made.
    pub(crate) fn note_late_explosion(&mut self, kept: &[f64]) {
        let Some(step) = self.steps.checked_sub(1) else { return };
        self.exploded.push(step);
        self.newest.clear();
        self.newest.extend_from_slice(kept);
        if self.history.steps.last() == Some(&step) {
            let start = self.history.records.len().saturating_sub(kept.len());
            self.history.records.truncate(start);
            self.history.records.extend_from_slice(kept);
        }
    }

    /// A number of the header in the newest step; 0 before any.
    pub fn header(&self, what: Header) -> f64 {
        self.newest.get(MeasureMemory::header(what)).copied().unwrap_or(0.0)
    }

    /// A layer's figures in the newest step, by its row; `None` before any.
    pub fn layer(&self, layer: usize) -> Option<LayerMeasures> {
        self.figures(&self.newest, layer)
    }

    /// A layer's figures in the record of this number.
    pub fn record(&self, number: usize, layer: usize) -> Option<LayerMeasures> {
        let len = self.memory().kept();
        self.figures(self.history.records.get(number * len..(number + 1) * len)?, layer)
    }

    fn figures(&self, kept: &[f64], layer: usize) -> Option<LayerMeasures> {
        if kept.is_empty() || layer >= self.rows() {
            return None;
        }
        let figure = |what| kept[self.memory().figure(layer, what)];
        let gap = figure(LayerFigure::Gap);
        // Inside a layer that does not learn nothing arrives that could be measured.
        let measured = |what| if layer >= self.layers && gap.is_nan() { f64::NAN } else { figure(what) };
        Some(LayerMeasures {
            gap,
            alignment: measured(LayerFigure::Alignment),
            gain: measured(LayerFigure::Gain),
            link_budget: measured(LayerFigure::LinkBudget),
            cell_gap: figure(LayerFigure::CellGap),
            reconstruction: figure(LayerFigure::Reconstruction),
        })
    }
}

impl MeasureHistory {
    /// Drops every second step, and keeps half as many from now on.
    fn thin(&mut self, len: usize) {
        self.stride *= 2;
        let kept: Vec<usize> =
            (0..self.steps.len()).filter(|i| self.steps[*i].is_multiple_of(self.stride)).collect();
        self.records = kept.iter().flat_map(|i| self.records[i * len..(i + 1) * len].to_vec()).collect();
        self.steps = kept.iter().map(|i| self.steps[*i]).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_thins_out_and_keeps_its_steps() {
        let mut measures = Measures::new(1, Vec::new());
        let len = measures.memory().kept();
        let watch = Watch { history: Some(3), history_limit: 4, ..Watch::tween() };
        for step in 0..100u32 {
            let kept: Vec<f64> = (0..len).map(|i| f64::from(step) + i as f64 / 1024.0).collect();
            measures.note(&watch, f64::from(step), &kept, step == 50);
        }
        let history = &measures.history;
        assert_eq!(measures.losses.len(), 100);
        assert_eq!(measures.exploded, [50]);
        assert!(history.steps.len() <= 4 && history.steps.len() >= 2);
        assert_eq!(history.steps[0], 0);
        for (number, step) in history.steps.iter().enumerate() {
            assert!(step.is_multiple_of(history.stride));
            let gap = measures.record(number, 0).unwrap().gap;
            assert_eq!(gap, *step as f64 + MeasureMemory::HEADER as f64 / 1024.0);
        }
        assert_eq!(measures.record(history.steps.len(), 0), None);
        assert_eq!(measures.layer(0).unwrap().gap, 99.0 + 16.0 / 1024.0);
    }
}
