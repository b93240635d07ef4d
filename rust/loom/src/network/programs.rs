//! Compiled programs, and runs of them that are idle.

use super::mode::{LayerValue, Mode};
use super::shapes::ExtentsKey;
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

/// The most programs kept; past that those go that were not asked for for the longest time.
const MAX_PROGRAMS: usize = 32;

/// A network's compiled programs and their idle runs, shared by concurrent callers.
#[derive(Debug, Default)]
pub struct Programs {
    /// What the network's input has where its extents are not fixed.
    extents: ExtentsKey,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<(ExtentsKey, ProgramKey), Entry>,
    /// How often any program was asked for.
    asked: u64,
}

#[derive(Debug)]
struct Entry {
    program: Arc<Program>,
    idle: Vec<Run>,
    /// When it was last asked for, by the count of that.
    newest: u64,
}

impl Programs {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere cannot leave the map half changed.
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The program of this key, compiled if need be.
    pub(crate) fn program(
        &self,
        key: &ProgramKey,
        compile: impl FnOnce() -> Result<Program>,
    ) -> Result<Arc<Program>> {
        let mut kept = self.lock();
        let Kept { entries, asked } = &mut *kept;
        *asked += 1;
        if let Some(entry) = entries.get_mut(&(self.extents, key.clone())) {
            entry.newest = *asked;
            return Ok(entry.program.clone());
        }
        let program = Arc::new(compile()?);
        if entries.len() >= MAX_PROGRAMS
            && let Some(oldest) =
                entries.iter().min_by_key(|(_, entry)| entry.newest).map(|(key, _)| key.clone())
        {
            entries.remove(&oldest);
        }
        let entry = Entry { program: program.clone(), idle: Vec::new(), newest: *asked };
        entries.insert((self.extents, key.clone()), entry);
        Ok(program)
    }

    /// A run of the program of this key, compiled if need be.
    pub(crate) fn lease(
        &self,
        key: &ProgramKey,
        device: &Device,
        compile: impl FnOnce() -> Result<Program>,
    ) -> Result<Run> {
        {
            let mut kept = self.lock();
            kept.asked += 1;
            let asked = kept.asked;
            if let Some(entry) = kept.entries.get_mut(&(self.extents, key.clone())) {
                entry.newest = asked;
                if let Some(run) = entry.idle.pop() {
                    return Ok(run);
                }
            }
        }
        device.run(self.program(key, compile)?)
    }

    /// Hands a run back for the next caller.
    pub(crate) fn give_back(&self, key: &ProgramKey, run: Run) {
        if let Some(entry) = self.lock().entries.get_mut(&(self.extents, key.clone()))
            && Arc::ptr_eq(&entry.program, &run.program)
        {
            entry.idle.push(run);
        }
    }

    /// Drops the memory of all idle runs; whether there was any.
    pub(crate) fn drop_idle(&self) -> bool {
        let mut kept = self.lock();
        let dropped: Vec<Run> =
            kept.entries.values_mut().flat_map(|entry| std::mem::take(&mut entry.idle)).collect();
        drop(kept);
        !dropped.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.lock().entries.clear();
    }

    /// Has programs be those for an input of these extents from now on.
    pub(crate) fn set_extents(&mut self, extents: ExtentsKey) {
        self.extents = extents;
    }
}
