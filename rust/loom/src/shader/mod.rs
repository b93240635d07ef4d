//! What operations need to run on a GPU, and what runs them is not: WGSL text, operands, and dispatches as a
//! list. Nothing here knows a driver; see the module `gpu` for that.
//!
//! ```text
//! accelerator  a device with memory of its own
//! speeds       how fast it is, as far as the choice of kernels goes by it
//! operand      parts of that memory, as kernels are handed them
//! template     WGSL text with its constants filled in
//! declaration  a kernel with its operands and numbers, from names
//! recorder     how an operation becomes dispatches
//! names        names in a kernel's text, and what becomes of them
//! side_by_side several kernels as one dispatch
//! repeated     one kernel for several lists of operands as one dispatch
//! product      matrix products, as generators of WGSL
//! ```

mod accelerator;
mod declaration;
mod names;
mod operand;
pub mod product;
mod recorder;
#[cfg_attr(not(any(feature = "gpu", test)), expect(dead_code, reason = "what an engine of a GPU asks for"))]
mod repeated;
mod row_places;
mod side_by_side;
mod speeds;
mod template;
#[cfg(test)]
pub(crate) mod testing;

pub use accelerator::{Accelerator, Allocation, Capabilities, HeldMemory};
pub use declaration::{Shader, THREADS};
pub use operand::{OFFSET_ELEMENTS, Operand, VersionOperands};
pub use recorder::{
    BiasSums, Bind, BothGradients, GpuOperation, HostCall, HostWork, IMMEDIATE_BYTES, KernelCall,
    MAX_BINDINGS, Recorded, Recorder, ToPlace,
};
#[cfg(feature = "gpu")]
pub(crate) use repeated::Numbers;
pub use side_by_side::Share;
pub use speeds::{Speeds, TILES};
pub(crate) use template::add_line;
pub use template::{Kernel, Template};
