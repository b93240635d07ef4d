//! Who reads whom: the sources of every layer of a grid that is clocked.

use crate::network::{Combine, Entry, Link, Mode, Network, at_layer, no_context};
use crate::state::CarriedSpec;
use crate::tensor::Shape;
use crate::{Error, Result};
use std::cell::Cell;

/// The most meetings of a cell's input and a link on the ways through cells without layers: each such cell may
/// double the ways, and a tick goes every one of them.
const MOST_MEETINGS: usize = 1 << 16;

/// The most such meetings one after another on one way: what is read is gone through by recursion.
const MOST_DEEP: usize = 1 << 10;

/// What a layer reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read {
    /// The network's input.
    Input,
    /// What of the network's named inputs enters a cell.
    Entered(Box<Entry>),
    /// What a layer, by its number, held after the tick before.
    Layer(usize),
    /// What becomes of a cell's input where a link arrives.
    Arrived { link: Link, input: Box<Read>, linked: Box<Read> },
}

impl Read {
    /// The layers read, in a fixed order.
    fn leaves(&self, found: &mut Vec<usize>) {
        match self {
            Read::Input | Read::Entered(_) => {}
            Read::Layer(layer) => found.push(*layer),
            Read::Arrived { input, linked, .. } => {
                input.leaves(found);
                linked.leaves(found);
            }
        }
    }

    /// How often the network's input is read.
    fn count_inputs(&self) -> usize {
        match self {
            Read::Input | Read::Entered(_) => 1,
            Read::Layer(_) => 0,
            Read::Arrived { input, linked, .. } => input.count_inputs() + linked.count_inputs(),
        }
    }

    /// Whether it reads any layer.
    pub(super) fn reads_layers(&self) -> bool {
        let mut found = Vec::new();
        self.leaves(&mut found);
        !found.is_empty()
    }
}

/// One layer that reads another; gradients flow along it the other way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) reader: usize,
    pub(super) source: usize,
}

/// A grid as a mesh sees it.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    /// What each layer reads: its input and, where it takes one, its context.
    pub(super) inputs: Vec<Vec<Read>>,
    /// By reader, in the order of its inputs and of what arrives there.
    pub(super) edges: Vec<Edge>,
    /// Which layers read the network's input: one entry for each time, in the order of layers and of what
    /// arrives there.
    pub(super) input_readers: Vec<usize>,
    /// Layers that must run one after another, since they share parameters; in order.
    pub(super) units: Vec<Vec<usize>>,
    /// What each cell hands on: what its last layer holds, or, where it has no layer, what arrives there.
    pub(super) cells: Vec<Read>,
    /// What stateful layers carry from tick to tick, by the number of the layer.
    pub(super) carried: Vec<(usize, CarriedSpec)>,
    /// Each layer's output's extents.
    pub(super) shapes: Vec<Shape>,
    /// The extents of the network's input.
    input_shape: Shape,
}

impl Wiring {
    /// Follows the cells and links of a network that is built.
    ///
    /// # Errors
    /// [`Error::State`] for links in a circle that passes no layer.
    pub(super) fn new(network: &Network) -> Result<Self> {
        let paths = Paths::of(network)?;
        let cells = (0..network.cells.len()).map(|cell| paths.output(cell, &[])).collect::<Result<_>>()?;
        let mut wiring = Self {
            inputs: Vec::new(),
            edges: Vec::new(),
            input_readers: Vec::new(),
            units: Vec::new(),
            cells,
            carried: network.carried_specs(Mode { training: true, ..Mode::default() }),
            shapes: Vec::new(),
            input_shape: network.input_shape().clone(),
        };
        for (number, cell) in network.cells.iter().enumerate() {
            let mut read = match cell.is_empty() {
                true => continue,
                false => paths.input(number, &[])?,
            };
            let context = network.links_to(number)?.into_iter().find(|(_, l)| l.combine == Combine::Context);
            for placed in cell {
                if placed.layer.index_limit().is_some() && matches!(read, Read::Arrived { .. }) {
                    return Err(at_layer(
                        placed,
                        Error::Value("the layer reads whole numbers, so no link may lead to it".into()),
                    ));
                }
                let mut inputs = vec![std::mem::replace(&mut read, Read::Layer(wiring.inputs.len()))];
                if placed.layer.takes_context() {
                    let (source, _) = context.ok_or_else(|| at_layer(placed, no_context()))?;
                    inputs.push(wiring.cells[source].clone());
                }
                wiring.inputs.push(inputs);
                wiring.shapes.push(placed.output_shape().cloned().unwrap_or_else(|| Shape::from(0)));
            }
        }
        for (reader, inputs) in wiring.inputs.iter().enumerate() {
            let mut sources = Vec::new();
            inputs.iter().for_each(|read| read.leaves(&mut sources));
            wiring.edges.extend(sources.into_iter().map(|source| Edge { reader, source }));
            let times = inputs.iter().map(Read::count_inputs).sum();
            wiring.input_readers.extend(std::iter::repeat_n(reader, times));
        }
        let mut by_store: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for (number, placed) in network.layers().enumerate() {
            match by_store.iter_mut().find(|(store, _)| store.is_some() && *store == placed.store) {
                Some((_, layers)) => layers.push(number),
                None => by_store.push((placed.store, vec![number])),
            }
        }
        wiring.units = by_store.into_iter().map(|(_, layers)| layers).collect();
        Ok(wiring)
    }

    /// Extents of what is read.
    ///
    /// # Errors
    /// [`Error::Shape`] where values that meet there do not fit.
    pub(super) fn shape_of(&self, read: &Read) -> Result<Shape> {
        match read {
            Read::Input => Ok(self.input_shape.clone()),
            Read::Entered(entry) => Ok(entry.shape().clone()),
            Read::Layer(layer) => Ok(self.shapes[*layer].clone()),
            Read::Arrived { link, input, linked } => {
                link.combined_shape(&self.shape_of(input)?, &self.shape_of(linked)?)
            }
        }
    }

    /// Whether a cell without layers hands on the network's input, alone or with what links bring.
    pub(super) fn hands_on_input(&self) -> bool {
        self.cells.iter().any(|read| read.count_inputs() > 0)
    }

    /// The edges along which gradients of a layer's output come.
    pub(super) fn edges_to(&self, layer: usize) -> impl Iterator<Item = usize> {
        let edges = self.edges.iter().enumerate();
        edges.filter(move |(_, edge)| edge.source == layer).map(|(number, _)| number)
    }

    /// The edges along which a layer sends gradients.
    pub(super) fn edges_of(&self, layer: usize) -> impl Iterator<Item = usize> {
        let edges = self.edges.iter().enumerate();
        edges.filter(move |(_, edge)| edge.reader == layer).map(|(number, _)| number)
    }

    /// Of `members`, one for each time that the network's input is read, those of a layer.
    pub(super) fn inputs_of<'a>(
        &'a self,
        layer: usize,
        members: &'a [usize],
    ) -> impl Iterator<Item = usize> + 'a {
        let members = self.input_readers.iter().zip(members);
        members.filter(move |(reader, _)| **reader == layer).map(|(_, member)| *member)
    }

    /// The numbers of what a layer carries from tick to tick.
    pub(super) fn carried_by(&self, layer: usize) -> impl Iterator<Item = usize> {
        let carried = self.carried.iter().enumerate();
        carried.filter(move |(_, (carrier, _))| *carrier == layer).map(|(number, _)| number)
    }
}

/// The ways through the cells, of which some have no layer.
struct Paths<'a> {
    network: &'a Network,
    /// The last layer of each cell, where it has one.
    last: Vec<Option<usize>>,
    /// Of each cell, the nearest one, itself or before it, that holds layers, that an input enters, or to which links
    /// lead; none where the network's input arrives as it is.
    sources: Vec<Option<usize>>,
    /// How many meetings there are so far.
    meetings: Cell<usize>,
}

impl<'a> Paths<'a> {
    fn of(network: &'a Network) -> Result<Self> {
        let (mut count, mut source) = (0, None);
        let (mut last, mut sources) = (Vec::new(), Vec::new());
        let mut targets = vec![false; network.cells.len()];
        for link in network.links.iter().filter(|link| link.combine != Combine::Context) {
            targets[network.cell_index(link.target)?] = true;
        }
        for (number, cell) in network.cells.iter().enumerate() {
            count += cell.len();
            if !cell.is_empty() || targets[number] || network.enters(number) {
                source = Some(number);
            }
            last.push((!cell.is_empty()).then(|| count - 1));
            sources.push(source);
        }
        Ok(Self { network, last, sources, meetings: Cell::new(0) })
    }

    /// What arrives at a cell; `passed` are the cells without layers that it was asked through.
    fn input(&self, cell: usize, passed: &[usize]) -> Result<Read> {
        let entry = self.network.entry(cell, &self.network.named_input_shapes(None))?;
        let mut read = match (entry, cell.checked_sub(1)) {
            (Some(entry), _) => Read::Entered(entry.into()),
            (None, Some(before)) => self.output(before, passed)?,
            (None, None) => Read::Input,
        };
        let mut deep = passed.len();
        for (source, link) in self.network.links_to(cell)? {
            if link.combine == Combine::Multiply {
                return Err(Error::State(format!(
                    "{} multiplies, which has no meaning in clock mode, where a cell's input at rest is 0; add, or \
                     concatenate",
                    link.named()
                )));
            }
            if link.combine == Combine::Replace {
                read = self.output(source, passed)?;
            } else if link.combine != Combine::Context {
                deep += 1;
                self.meetings.set(self.meetings.get() + 1);
                if self.meetings.get() > MOST_MEETINGS || deep > MOST_DEEP {
                    return Err(Error::State(format!(
                        "more than {MOST_MEETINGS} ways, or {MOST_DEEP} links one after another, lead through \
                         cells that hold no layer; put a layer into one of them"
                    )));
                }
                let linked = self.output(source, passed)?.into();
                read = Read::Arrived { link: link.clone(), input: read.into(), linked };
            }
        }
        Ok(read)
    }

    /// What a cell hands on.
    fn output(&self, cell: usize, passed: &[usize]) -> Result<Read> {
        let Some(cell) = self.sources[cell] else { return Ok(Read::Input) };
        match self.last[cell] {
            Some(layer) => Ok(Read::Layer(layer)),
            None if passed.contains(&cell) => Err(Error::State(
                "links lead in a circle that passes no layer; put a layer into one of its cells".into(),
            )),
            None => self.input(cell, &[passed, &[cell]].concat()),
        }
    }
}
