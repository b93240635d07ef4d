//! A kernel's operands by name: the WGSL declarations and what is bound to them, in one order.

use crate::Result;
use crate::shader::{Bind, Recorder};

/// Operands in the order in which they are bound.
#[derive(Default)]
pub(super) struct Operands {
    /// What is bound.
    pub(super) binds: Vec<Bind>,
    /// Their declarations.
    pub(super) text: String,
    next: usize,
}

impl Operands {
    /// An operand whose elements are of this WGSL type.
    pub(super) fn push_typed(&mut self, name: &str, element: &str, bind: Bind) {
        let access = if matches!(bind, Bind::Write(_)) { "read_write" } else { "read" };
        let number = self.binds.len();
        self.text +=
            &format!("@group(0) @binding({number}) var<storage, {access}> {name}: array<{element}>;\n");
        self.binds.push(bind);
    }

    /// An operand of real numbers.
    pub(super) fn push(&mut self, name: &str, bind: Bind) {
        self.push_typed(name, "f32", bind);
    }

    /// The step's next operand, where `present`.
    ///
    /// # Errors
    /// As [`Recorder::read`].
    pub(super) fn read(&mut self, recorder: &Recorder<'_>, name: &str, present: bool) -> Result<()> {
        if present {
            self.push(name, Bind::Read(recorder.read(self.next)?));
            self.next += 1;
        }
        Ok(())
    }

    /// Result `index` of the step.
    ///
    /// # Errors
    /// As [`Recorder::write`].
    pub(super) fn write(&mut self, recorder: &Recorder<'_>, name: &str, index: usize) -> Result<()> {
        self.push(name, Bind::Write(recorder.write(index)?));
        Ok(())
    }
}
