//! Programs as text: one line a step, for people and for golden tests.

use super::{Program, Write};
use crate::program::{Place, Value};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program, {:?}, capacity {}", self.precision, self.capacity)?;
        let mut phase = None;
        for step in &self.steps {
            if phase != Some(step.phase) {
                phase = Some(step.phase);
                writeln!(f, "{:?}", step.phase)?;
            }
            let at = step.at.as_ref().map(ToString::to_string).unwrap_or_default();
            let reads: Vec<String> = step.reads.iter().map(|v| self.describe(*v)).collect();
            let writes: Vec<String> = step.writes.iter().map(|v| self.describe(*v)).collect();
            let arrow = match step.write {
                Write::Set => "->",
                Write::Add => "+>",
                Write::First => "*>",
            };
            writeln!(f, "  {at:<8} {} [{}] {arrow} [{}]", step.op, reads.join(", "), writes.join(", "))?;
        }
        write!(f, "buffers {:?}", self.buffers)
    }
}

impl Program {
    fn describe(&self, value: Value) -> String {
        let info = self.value(value);
        let per_row = if info.per_row { "n x " } else { "" };
        let place = match self.value(self.owner(value)).place {
            Place::Buffer(buffer) => format!("b{buffer}"),
            Place::Master(p) => format!("master {}{}", p.store, parameter(p.parameter)),
            Place::Version(p, dtype) => format!("{dtype} {}{}", p.store, parameter(p.parameter)),
            Place::Gradient(p) => format!("gradient {}{}", p.store, parameter(p.parameter)),
            Place::Moment { store, slot } => format!("moment {store}/{slot}"),
            Place::State(state) => format!("state {state}"),
            Place::Carried(carried) => format!("carried {carried}"),
            Place::Ring { member, age } => format!("ring {member}-{age}"),
            Place::Alias(_) => unreachable!("owners are no aliases"),
        };
        format!("{} {per_row}{} @{place}", info.label, info.shape)
    }
}

fn parameter(index: Option<usize>) -> String {
    index.map(|i| format!(".{i}")).unwrap_or_default()
}
