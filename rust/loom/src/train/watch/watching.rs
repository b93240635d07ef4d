//! Lowers the measures of every layer, the judgement on the step, and what updates need to follow it.

use super::places::inside;
use crate::layers::Steps;
use crate::network::{Lowered, Network, Watch};
use crate::ops::combination::Term;
use crate::ops::measure::{Entry, ExplosionRule, MeasureMemory, Measured};
use crate::ops::update::Watched;
use crate::ops::{Collect, Judge, Measure};
use crate::program::{Builder, InnerGradient, LayerPath, Phase, Value};
use crate::state::WatchPlaces;
use crate::tensor::Shape;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The measures of a program while it is being lowered.
pub(crate) struct Watching<'a> {
    watch: &'a Watch,
    places: &'a WatchPlaces,
    /// Whether updates obey the gates of their layers.
    gated: bool,
    /// Whether losses, and with them gradients, are scaled.
    scaled: bool,
    /// Which steps of values are real, where some are padding.
    masks: BTreeMap<Value, Value>,
    /// The sums to be collected: where they go, and what they are.
    sums: Vec<(Entry, Value)>,
    /// Where in the memory the squared norms of values are.
    norms: Vec<(Value, usize)>,
    norms_used: usize,
    /// Those of each layer's input and output.
    layer_norms: Vec<[usize; 2]>,
    /// The layers inside others that are measured, too, in the order of their rows.
    paths_inside: Vec<LayerPath>,
    /// What these read and made, by row.
    inside: Vec<(usize, [Value; 2])>,
}

impl<'a> Watching<'a> {
    /// For this network, which has been prepared.
    pub(crate) fn new(network: &'a Network, watch: &'a Watch, gated: bool) -> Result<Self> {
        let places = network.registry.watch.as_ref();
        let places = places.ok_or_else(|| Error::Internal("a watched training was not prepared".into()))?;
        Ok(Self {
            watch,
            places,
            gated,
            scaled: network.scales_loss(),
            masks: BTreeMap::new(),
            sums: Vec::new(),
            norms: Vec::new(),
            norms_used: 0,
            layer_norms: Vec::new(),
            paths_inside: inside(network, watch.depth)?.into_iter().map(|(path, _)| path).collect(),
            inside: Vec::new(),
        })
    }

    /// Leaves out steps that are padding.
    pub(crate) fn over_real_steps(mut self, network: &Network, lowered: &Lowered) -> Self {
        for (placed, layer) in network.layers().zip(&lowered.layers) {
            let made = (placed.layer().steps() != Steps::Pooled).then_some(layer.forward.output);
            self.note_mask(layer.context.mask, [Some(layer.inputs[0]), made]);
        }
        self
    }

    /// Notes which steps of values are real.
    fn note_mask(&mut self, mask: Option<Value>, values: impl IntoIterator<Item = Option<Value>>) {
        if let Some(mask) = mask {
            self.masks.extend(values.into_iter().flatten().map(|value| (value, mask)));
        }
    }

    /// Asks layers inside others for gradients of what they make, where those are measured.
    pub(crate) fn ask_inside(&self, b: &mut Builder) {
        b.inner_gradients = (!self.paths_inside.is_empty()).then(Vec::new);
    }

    /// Measures what layers inside others have shown since they were asked (`Builder::inner_gradients`) against
    /// targets, `term` times their gradients away; asks no more.
    pub(crate) fn inside(&mut self, b: &mut Builder, term: Term) {
        for (row, shown) in self.shown_inside(b) {
            let what = Measured::Gradient(term);
            self.note_mask(shown.masks[0], [Some(shown.input)]);
            self.note_mask(shown.masks[1], [Some(shown.output)]);
            self.push(b, Entry::Layer(row), what, &[shown.output, shown.gradient]);
            self.note_norm(shown.output, Entry::Layer(row));
            self.inside.push((row, [shown.input, shown.output]));
        }
    }

    /// As [`inside`](Self::inside), of a tick of a mesh.
    pub(crate) fn tick_inside(&mut self, b: &mut Builder, term: Term) {
        for (row, shown) in self.shown_inside(b) {
            let what = Measured::Gradient(term);
            self.push(b, Entry::Layer(row), what, &[shown.output, shown.gradient]);
            self.push(b, Entry::Norm(row), Measured::Norm, &[shown.input]);
        }
    }

    /// What layers inside others have shown, each with its row.
    fn shown_inside(&self, b: &mut Builder) -> Vec<(usize, InnerGradient)> {
        let shown = b.inner_gradients.take().unwrap_or_default().into_iter();
        let row = |path: &LayerPath| self.paths_inside.iter().position(|inner| inner == path);
        shown.filter_map(|shown| Some((self.places.memory.layers + row(&shown.path)?, shown))).collect()
    }

    /// A chain-rule target is the output plus this many times the gradient of the loss.
    pub(crate) fn target_term(&self) -> Term {
        Term::fixed(-self.watch.gradient_scale).times_rows().over_scale(self.scaled)
    }

    /// Measures a layer's output against its chain-rule target, from the gradient of the loss.
    pub(crate) fn gradient(&mut self, b: &mut Builder, lowered: &Lowered, layer: usize, gradient: Value) {
        let output = lowered.layers[layer].forward.output;
        let what = Measured::Gradient(self.target_term());
        self.push(b, Entry::Layer(layer), what, &[output, gradient]);
        self.note_norm(output, Entry::Layer(layer));
    }

    /// Measures a layer's output, or what it means, against its target.
    pub(crate) fn target(
        &mut self,
        b: &mut Builder,
        lowered: &Lowered,
        layer: usize,
        [value, target]: [Value; 2],
    ) {
        // What an output means has its steps.
        self.note_mask(self.masks.get(&lowered.layers[layer].forward.output).copied(), [Some(value)]);
        self.push(b, Entry::Layer(layer), Measured::Target, &[value, target]);
        if value == lowered.layers[layer].forward.output {
            self.note_norm(value, Entry::Layer(layer));
        }
    }

    /// Measures the cell states that recurrent layers have shown (`Builder::cells`) against their targets,
    /// `term` times their gradients away.
    pub(crate) fn cells(&mut self, b: &mut Builder, network: &Network, term: Term) {
        for cell in b.cells.take().unwrap_or_default() {
            // A layer inside another one reports for the outer one, and for itself where it has a row.
            let outer = |path: &LayerPath| cell.path.indices().starts_with(path.indices());
            let Some(layer) = network.layers().position(|placed| outer(placed.path())) else { continue };
            let what = Measured::Gradient(term);
            self.note_mask(cell.mask, [Some(cell.states)]);
            self.push(b, Entry::Cell(layer), what, &[cell.states, cell.gradient]);
            if let Some(inner) = self.paths_inside.iter().position(|path| *path == cell.path) {
                let row = self.places.memory.layers + inner;
                self.push(b, Entry::Cell(row), what, &[cell.states, cell.gradient]);
            }
        }
    }

    /// Measures what a layer's feedback map has made of its `input` against what it was to make.
    pub(crate) fn reconstruction(
        &mut self,
        b: &mut Builder,
        layer: usize,
        input: Value,
        [made, wanted]: [Value; 2],
    ) {
        let what = Measured::Target;
        self.note_mask(self.masks.get(&input).copied(), [Some(made)]);
        self.push(b, Entry::Reconstruction(layer), what, &[made, wanted]);
    }

    fn push(&mut self, b: &mut Builder, entry: Entry, what: Measured, reads: &[Value]) {
        let mask = self.masks.get(&reads[0]).copied();
        debug_assert!(mask.is_none_or(|mask| b.shape(reads[0]).first() == b.shape(mask).first()));
        let steps = mask.map_or(1, |mask| b.shape(mask).len());
        let op = Measure { what, of_steps: mask.map(|_| b.shape(reads[0]).len() / steps) };
        let reads: Vec<Value> = reads.iter().copied().chain(mask).collect();
        let sums = b.apply_fixed(op, &reads, "sums", Shape::from(Measure::SUMS));
        self.sums.push((entry, sums));
    }

    fn note_norm(&mut self, value: Value, entry: Entry) {
        self.norms.push((value, self.places.memory.entry(entry)));
    }

    /// Where the squared norm of a value is, measured unless it was already.
    fn norm(&mut self, b: &mut Builder, value: Value) -> usize {
        if let Some((_, place)) = self.norms.iter().find(|(known, _)| *known == value) {
            return *place;
        }
        let entry = Entry::Norm(self.norms_used);
        self.norms_used += 1;
        self.push(b, entry, Measured::Norm, &[value]);
        self.note_norm(value, entry);
        self.places.memory.entry(entry)
    }

    /// Collects all sums, of every batch of a step that `accumulates`; unless only feedback maps learn, those
    /// of all norms with them.
    pub(crate) fn collect(&mut self, b: &mut Builder, lowered: &Lowered, forward: bool, accumulates: bool) {
        b.set_layer(None);
        b.set_phase(Phase::Exchange);
        if forward {
            for layer in &lowered.layers {
                let norms = [self.norm(b, layer.inputs[0]), self.norm(b, layer.forward.output)];
                self.layer_norms.push(norms);
            }
            for row in self.places.memory.layers..self.places.memory.rows() {
                let norms = match self.inside.iter().find(|(found, _)| *found == row) {
                    Some((_, values)) => values.map(|value| self.norm(b, value)),
                    // Nothing is measured of it: it has no norms.
                    None => [self.places.memory.entry(Entry::Layer(row)); 2],
                };
                self.layer_norms.push(norms);
            }
        }
        if !accumulates && self.sums.len() <= Collect::MOST {
            // The judgement brings so few in itself.
            return;
        }
        self.collect_sums(b);
    }

    fn collect_sums(&mut self, b: &mut Builder) {
        let memory = self.places.measures(b);
        for group in std::mem::take(&mut self.sums).chunks(Collect::MOST) {
            let entries = group.iter().map(|(entry, _)| *entry).collect();
            let reads: Vec<Value> = group.iter().map(|(_, sums)| *sums).collect();
            b.effect_of_batch(Collect { memory: self.places.memory, entries }, &reads, &[memory]);
        }
    }

    /// Measures a tick of a layer of a mesh: what it held against its chain-rule target, and what it had read.
    pub(crate) fn tick(
        &mut self,
        b: &mut Builder,
        layer: usize,
        [input, output]: [Value; 2],
        gradient: Value,
    ) {
        let what = Measured::Gradient(self.target_term());
        self.push(b, Entry::Layer(layer), what, &[output, gradient]);
        self.push(b, Entry::Norm(layer), Measured::Norm, &[input]);
    }

    /// Measures a tick of a layer of a mesh against a target of any kind.
    pub(crate) fn tick_target(
        &mut self,
        b: &mut Builder,
        layer: usize,
        [input, output]: [Value; 2],
        target: Value,
    ) {
        self.push(b, Entry::Layer(layer), Measured::Target, &[output, target]);
        self.push(b, Entry::Norm(layer), Measured::Norm, &[input]);
    }

    /// Collects the sums of a tick, which are added to those of the window's other ticks.
    pub(crate) fn collect_tick(&mut self, b: &mut Builder) {
        b.set_layer(None);
        b.set_phase(Phase::Exchange);
        self.collect_sums(b);
    }

    /// Judges a window of ticks by what was collected.
    pub(crate) fn judge_ticks(&mut self, b: &mut Builder) -> Result<()> {
        let place = |entry| self.places.memory.entry(entry);
        let rows = 0..self.places.memory.rows();
        self.layer_norms =
            rows.map(|layer| [place(Entry::Norm(layer)), place(Entry::Layer(layer))]).collect();
        self.judge(b)
    }

    /// Judges the step by what was collected.
    pub(crate) fn judge(&self, b: &mut Builder) -> Result<()> {
        let losses = b.ports.row_losses;
        let losses = losses.ok_or_else(|| Error::Internal("a training program lacks its losses".into()))?;
        b.set_phase(Phase::Verdict);
        let forward = !self.layer_norms.is_empty();
        let norm = b.ports.gradient_norm.filter(|_| forward);
        let mut reads: Vec<Value> = [Some(losses), norm].into_iter().flatten().collect();
        reads.extend(self.sums.iter().map(|(_, sums)| *sums));
        let op = Judge {
            entries: self.sums.iter().map(|(entry, _)| *entry).collect(),
            memory: self.places.memory,
            norms: self.layer_norms.clone(),
            metric: self.watch.gap_metric,
            budget: self.watch.link_budget,
            budget_scale: self.watch.link_budget_scale,
            explosion: self.watch.explosion,
            has_norm: norm.is_some(),
        };
        let memory = self.places.measures(b);
        b.effect(op, &reads, &[memory]);
        b.ports.measures = Some(memory);
        b.ports.judges = forward;
        b.ports.recovers = forward && self.watch.explosion.is_some();
        Ok(())
    }

    /// What an update has to follow, for a look ahead at it, with the memory that says so.
    pub(crate) fn decision(&self, b: &mut Builder, layer: Option<usize>) -> Option<(Watched, Value)> {
        let follows = self.watch.explosion.is_some() || self.gated;
        let watched =
            Watched { memory: self.places.memory, layer: layer.filter(|_| self.gated), keeps: false };
        follows.then(|| (watched, self.places.measures(b)))
    }

    /// By what a step is judged again that cannot land, and the memory that says so.
    pub(crate) fn judged_again(&self, b: &mut Builder) -> Option<((MeasureMemory, ExplosionRule), Value)> {
        Some(((self.places.memory, self.watch.explosion?), self.places.measures(b)))
    }

    /// What the update of a store of `len` weights has to follow, if anything, with what it reads and
    /// writes for that. The `first` update of a step keeps copies, or goes back to them.
    pub(crate) fn update(
        &self,
        b: &mut Builder,
        (store, len): (usize, usize),
        layer: Option<usize>,
        first: bool,
    ) -> Option<(Watched, Value, Vec<Value>)> {
        let detects = self.watch.explosion.is_some();
        if !detects && !self.gated {
            return None;
        }
        let keeps = detects && first;
        let watched = Watched { memory: self.places.memory, layer: layer.filter(|_| self.gated), keeps };
        let numbers = self.places.copies.get(store).filter(|_| keeps).map_or(&[][..], Vec::as_slice);
        let copies = numbers.iter().map(|number| b.state("copy", Shape::from(len), *number)).collect();
        Some((watched, self.places.measures(b), copies))
    }
}
