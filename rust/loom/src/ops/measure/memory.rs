//! The memory of the measures: one array of real numbers.

/// Where the sums of a [`Measure`](super::Measure) go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A layer's output and its target, by its row.
    Layer(usize),
    /// The norm of a value, by its number among those measured.
    Norm(usize),
    /// A layer's cell state and its target.
    Cell(usize),
    /// What a layer's feedback map makes of a value, and the value.
    Reconstruction(usize),
}

/// Where everything is in the memory of the measures of a network.
///
/// First a header, then a row of figures for each layer, then the sums that they are made of. Header and figures
/// come first, so that they can be kept from step to step in one piece. Layers inside others have rows behind
/// those of the layers of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MeasureMemory {
    /// How many layers there are in cells, by which steps are judged.
    pub layers: usize,
    /// How many layers inside them are measured, too.
    pub inner: usize,
    /// How many values' norms are measured.
    pub norms: usize,
}

/// One number of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// What the step's updates are to do: an [`Action`].
    Action,
    /// The adaptive rate over the step's own rate: 1 or less.
    RateFactor,
    /// The mean gap of the last calm step.
    PreviousGap,
    /// The mean gap over that.
    Growth,
    /// How many explosions there have been.
    Explosions,
    /// The mean gap over all layers.
    MeanGap,
    /// 1 once there was a calm step.
    HasPrevious,
    /// 1 once an update was let through, which leaves what it can be taken back to.
    HasSnapshot,
    /// 1 where the last step that was judged was let through.
    Applied,
    /// How many steps were judged.
    Judged,
    /// The rate factor before the newest judgement, for a step that is judged again.
    RateBefore,
    /// The mean gap of the last calm step before it.
    GapBefore,
    /// 1 where there was a calm step before it.
    HadPrevious,
    /// 1 where there was something to go back to before it.
    HadSnapshot,
}

/// What updates are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Hold,
    /// Keep a copy of what is there, and move on.
    Apply,
    /// Go back to the copy.
    RollBack,
}

impl Action {
    /// As it stands in the memory.
    pub fn code(self) -> f64 {
        match self {
            Action::Hold => 0.0,
            Action::Apply => 1.0,
            Action::RollBack => 2.0,
        }
    }

    /// From the memory.
    pub fn from_code(code: f64) -> Self {
        match code {
            1.0 => Action::Apply,
            2.0 => Action::RollBack,
            _ => Action::Hold,
        }
    }
}

/// One figure of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFigure {
    /// How far its output is from its target.
    Gap,
    /// (1 + cosine of output and target) / 2.
    Alignment,
    /// The output's norm over the input's.
    Gain,
    /// Its share of what there is to pass on.
    LinkBudget,
    /// What the rate is multiplied by; below 0 where the layer is not to be updated.
    Gate,
    /// The gap of a recurrent layer's cell state; NaN elsewhere.
    CellGap,
    /// How far its feedback map is from reconstructing its input; NaN where it has none.
    Reconstruction,
}

/// Figures of one layer.
const FIGURES: usize = 8;
/// Sums of a value and its target, the number of elements among them.
const SUMS: usize = 5;
/// Entries of each layer: its output, its cell state, its reconstruction.
const KINDS: usize = 3;

impl MeasureMemory {
    /// Numbers of the header.
    pub const HEADER: usize = 16;

    /// Numbers in all.
    pub fn len(&self) -> usize {
        self.kept() + SUMS * (KINDS * self.rows() + self.norms)
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.layers == 0
    }

    /// How many layers have figures, those inside others with them.
    pub fn rows(&self) -> usize {
        self.layers + self.inner
    }

    /// How many numbers, the first ones, are worth keeping from step to step.
    pub fn kept(&self) -> usize {
        Self::HEADER + FIGURES * self.rows()
    }

    /// Where a number of the header is.
    pub fn header(what: Header) -> usize {
        what as usize
    }

    /// Where a layer's figure is.
    pub fn figure(&self, layer: usize, what: LayerFigure) -> usize {
        Self::HEADER + FIGURES * layer + what as usize
    }

    /// Where an entry's sums start; the number of elements follows them.
    pub fn entry(&self, entry: Entry) -> usize {
        let number = match entry {
            Entry::Layer(layer) => layer,
            Entry::Cell(layer) => self.rows() + layer,
            Entry::Reconstruction(layer) => 2 * self.rows() + layer,
            Entry::Norm(norm) => KINDS * self.rows() + norm,
        };
        self.kept() + SUMS * number
    }
}
