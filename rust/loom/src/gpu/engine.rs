//! A GPU as an engine.

use super::execute::{execute, execute_ticks};
use super::memory::Memory;
use super::mirror::Mirror;
use super::training::{Resident, train_frame};
use super::{Gpu, first_hardware, open};
use crate::ops::StepValues;
use crate::program::{
    self, Access, Engine, FrameStep, FrameTick, Frames, Outcomes, Phase, Program, Provider, Run, RunMemory,
};
use crate::shader::Accelerator;
use crate::state::{self, Carried, Registry};
use crate::{Error, Result};
use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Runs programs on an opened GPU.
#[derive(Debug)]
pub struct GpuEngine(Arc<Gpu>);

impl GpuEngine {
    /// An engine on this GPU.
    pub fn new(gpu: Arc<Gpu>) -> Self {
        Self(gpu)
    }
}

impl Gpu {
    /// The GPU that an engine runs programs on, if it is one for GPUs.
    pub fn of(engine: &Arc<dyn Engine>) -> Option<Arc<Gpu>> {
        let engine: &dyn Any = &**engine;
        engine.downcast_ref::<GpuEngine>().map(|engine| engine.0.clone())
    }
}

impl Engine for GpuEngine {
    fn name(&self) -> String {
        format!("gpu:{}", self.0.adapter().index)
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn accelerator(&self) -> Option<Arc<dyn Accelerator>> {
        Some(self.0.clone())
    }

    fn mirror(&self) -> Option<Box<dyn state::Mirror>> {
        Some(Box::new(Mirror::new(self.0.clone())))
    }

    fn lease(&self, program: &Program) -> Result<Option<Box<dyn RunMemory>>> {
        Ok(Some(Box::new(Memory::new(self.0.clone(), program)?)))
    }

    fn execute(
        &self,
        run: &mut Run,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        let (rows, part, fetches) = (run.rows, run.chosen(), run.fetches);
        let (memory, program) = run.remote::<Memory>()?;
        execute(memory, program, rows, access, (phases, part), std::slice::from_ref(values), fetches)
    }

    fn frames(&self) -> Option<&dyn Frames> {
        Some(self)
    }
}

impl Frames for GpuEngine {
    fn resident(&self, rows: usize, arrays: &[&[u8]]) -> Result<Option<Box<dyn program::Resident>>> {
        let resident = Resident::new(&self.0, rows, arrays)?;
        Ok(resident.map(|resident| Box::new(resident) as Box<dyn program::Resident>))
    }

    fn train(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        steps: &[FrameStep],
        resident: Option<(&dyn program::Resident, &[u32])>,
        kept: Option<usize>,
        halts: bool,
    ) -> Result<Outcomes> {
        let resident = match resident {
            Some((resident, order)) => {
                let resident: &dyn Any = resident;
                let resident = resident.downcast_ref::<Resident>();
                let resident =
                    resident.ok_or_else(|| Error::Internal("examples of another engine".into()))?;
                Some((resident, order))
            }
            None => None,
        };
        let (memory, program) = run.remote::<Memory>()?;
        train_frame(memory, program, registry, steps, resident, kept, halts)
    }

    fn ticks(
        &self,
        run: &mut Run,
        registry: &mut Registry,
        phases: RangeInclusive<Phase>,
        ticks: &[FrameTick],
    ) -> Result<()> {
        let rows = run.rows;
        let (memory, program) = run.remote::<Memory>()?;
        execute_ticks(memory, program, rows, registry, phases, ticks)
    }

    fn follow(
        &self,
        run: &mut Run,
        registry: &Registry,
        carried: &mut Carried,
        phases: RangeInclusive<Phase>,
        values: &[StepValues],
    ) -> Result<()> {
        let (rows, part, fetches) = (run.rows, run.chosen(), run.fetches);
        let (memory, program) = run.remote::<Memory>()?;
        execute(memory, program, rows, Access::Session(registry, carried), (phases, part), values, fetches)
    }
}

/// Opens GPUs by their numbers.
#[derive(Debug)]
pub struct Gpus;

impl Provider for Gpus {
    fn kind(&self) -> &'static str {
        "gpu"
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(GpuEngine(open(index)?)))
    }

    fn first_hardware(&self) -> Option<usize> {
        first_hardware()
    }
}
