//! Compiled programs, and runs of them that are idle.

use super::mode::{LayerValue, Mode};
use crate::program::{LayerPath, Program, Run};
use crate::{Device, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What tells cached programs of one network apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    pub mode: Mode,
    pub capacity: usize,
    /// Whether a backward pass from a given output gradient follows.
    pub backward: bool,
    /// What is to be handed out, if not the output.
    pub asked: Vec<(LayerPath, LayerValue)>,
}

impl ProgramKey {
    /// Of a forward pass.
    pub(crate) fn forward(mode: Mode, capacity: usize) -> Self {
        Self { mode, capacity, backward: false, asked: Vec::new() }
    }
}

/// The most programs kept; past that the cache starts anew.
const MAX_PROGRAMS: usize = 16;

/// A network's compiled programs and their idle runs, shared by concurrent callers.
#[derive(Debug, Default)]
pub struct Programs {
    entries: Mutex<HashMap<ProgramKey, Entry>>,
}

#[derive(Debug)]
struct Entry {
    program: Arc<Program>,
    idle: Vec<Run>,
}

impl Programs {
    fn lock(&self) -> MutexGuard<'_, HashMap<ProgramKey, Entry>> {
        // A panic elsewhere cannot leave the map half changed.
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The program of this key, compiled if need be.
    pub(crate) fn program(
        &self,
        key: &ProgramKey,
        compile: impl FnOnce() -> Result<Program>,
    ) -> Result<Arc<Program>> {
        let mut entries = self.lock();
        if let Some(entry) = entries.get(key) {
            return Ok(entry.program.clone());
        }
        let program = Arc::new(compile()?);
        if entries.len() >= MAX_PROGRAMS {
            entries.clear();
        }
        entries.insert(key.clone(), Entry { program: program.clone(), idle: Vec::new() });
        Ok(program)
    }

    /// A run of the program of this key, compiled if need be.
    pub(crate) fn lease(
        &self,
        key: &ProgramKey,
        device: &Device,
        compile: impl FnOnce() -> Result<Program>,
    ) -> Result<Run> {
        if let Some(run) = self.lock().get_mut(key).and_then(|entry| entry.idle.pop()) {
            return Ok(run);
        }
        device.run(self.program(key, compile)?)
    }

    /// Hands a run back for the next caller.
    pub(crate) fn give_back(&self, key: &ProgramKey, run: Run) {
        if let Some(entry) = self.lock().get_mut(key)
            && Arc::ptr_eq(&entry.program, &run.program)
        {
            entry.idle.push(run);
        }
    }

    /// Drops the memory of all idle runs; whether there was any.
    pub(crate) fn drop_idle(&self) -> bool {
        let mut entries = self.lock();
        let dropped: Vec<Run> =
            entries.values_mut().flat_map(|entry| std::mem::take(&mut entry.idle)).collect();
        drop(entries);
        !dropped.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}
