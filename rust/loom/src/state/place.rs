//! Names for layers, for values of programs, and for what they are kept in.

use crate::dtype::DType;

/// One value of a program: an index into those of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One weight store's parameter, or the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParameterRef {
    /// Index of the weight store in the registry.
    pub store: usize,
    /// Index of the parameter in the store; `None` names the whole flat store.
    pub parameter: Option<usize>,
}

/// Where the elements of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the run's buffer of this number, which other values may use at other times.
    Buffer(usize),
    /// In a master, full precision.
    Master(ParameterRef),
    /// In a packed version of a parameter.
    Version(ParameterRef, DType),
    /// In a store's accumulated gradient.
    Gradient(ParameterRef),
    /// In an optimizer's moment `slot` for a whole store.
    Moment {
        /// Index of the weight store in the registry.
        store: usize,
        /// Which of the optimizer's moments.
        slot: usize,
    },
    /// In what a layer keeps beside its parameters, such as running statistics: its number in the registry.
    State(usize),
    /// In what a layer carries from call to call of a session, row by row: its number in the network.
    Carried(usize),
    /// In the ring of what a clocked network has held at its last ticks.
    Ring {
        /// Whose ring: its number among those of the registry.
        member: usize,
        /// How many ticks ago; 0 is the tick that the program is run for.
        age: usize,
    },
    /// The same memory as another value (a reshape).
    Alias(Value),
}

/// Which layer a step belongs to: cell coordinates and the place in the cell,
/// then places inside composite layers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LayerPath(Vec<usize>);

impl LayerPath {
    /// The path of layer `layer` of cell (`depth`, `row`, `column`).
    pub fn new(depth: usize, row: usize, column: usize, layer: usize) -> Self {
        Self(vec![depth, row, column, layer])
    }

    /// The path of a layer inside this one.
    pub fn inner(&self, index: usize) -> Self {
        let mut path = self.0.clone();
        path.push(index);
        Self(path)
    }

    /// Whether it is inside another layer.
    pub fn is_inner(&self) -> bool {
        self.0.len() > 4
    }

    /// The indices, outermost first.
    pub fn indices(&self) -> &[usize] {
        &self.0
    }

    /// A number that tells paths apart, for keying random draws (32-bit FNV-1a).
    pub fn hash32(&self) -> u32 {
        let mut hash = 0x811c_9dc5u32;
        for index in &self.0 {
            for byte in (*index as u32).to_le_bytes() {
                hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            }
        }
        hash
    }
}

impl From<Vec<usize>> for LayerPath {
    /// The path of these indices.
    fn from(indices: Vec<usize>) -> Self {
        Self(indices)
    }
}

/// `0.0.1.2`
impl std::fmt::Display for LayerPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, index) in self.0.iter().enumerate() {
            write!(f, "{}{index}", if i > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}
