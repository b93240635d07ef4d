//! What programs of a network are for, and what is looked at.

use crate::ops::CacheType;

/// What a program is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Dropout and the like are on.
    pub training: bool,
    /// What gradients need is kept, though this is not training.
    pub keeps: bool,
    /// What every layer reads and makes stays readable after the run.
    pub pin_layers: bool,
    /// So does what layers inside others read and make.
    pub looks_inside: bool,
    /// The gradient of what every layer reads stays readable after the backward pass.
    pub keeps_input_gradients: bool,
    /// A backward pass makes the gradient of the network's input alone, and none of parameters.
    pub input_gradient_only: bool,
    /// For a session: how much of its sequences one call brings.
    pub session: Option<SessionExtent>,
    /// In training each call brings sequences of their own: none goes on from the call before.
    pub apart: bool,
}

/// The part of a session's sequences that one call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionExtent {
    /// Steps of the sequences in this call.
    pub steps: usize,
    /// The most steps there will be in all.
    pub capacity: usize,
    /// What keys and values are kept as.
    pub cache: CacheType,
    /// What of its outputs is wanted.
    pub ending: Ending,
    /// How many steps a session goes on by itself at most, for which what they are drawn by is kept; none where it
    /// does not.
    pub ahead: usize,
}

/// What of the outputs of a session's call is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Those of all steps.
    All,
    /// That of the last step.
    Last,
    /// A place of the last step's, which is kept as the next step.
    Choice(Pick),
    /// Likewise, of a call that brings the one step that the call before has chosen.
    Chain(Pick),
}

/// Which place is kept as the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pick {
    /// That of the largest.
    Likeliest,
    /// One that is drawn.
    Drawn,
}

/// Which of a layer's values to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerValue {
    /// What it read.
    Input,
    /// Before its activation; the output where it has none.
    Preactivation,
    /// What it handed on.
    Output,
    /// The gradient of what it read, as far as that goes through this layer.
    InputGradient,
    /// Of attention, how much each query looks at each key: (heads, queries, keys) a row.
    AttentionWeights,
}
