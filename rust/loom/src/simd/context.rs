//! What kernels need to know about the machine they run on.

use super::{Isa, Pool};
use crate::{Error, Result};
use std::sync::{Arc, LazyLock};

/// The instruction set to use and the threads to use it on.
///
/// Results never depend on either.
#[derive(Clone, Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Arc<Pool>,
}

impl Cpu {
    /// This instruction set on this pool.
    pub fn new(isa: Isa, pool: Arc<Pool>) -> Self {
        Self { isa, pool }
    }

    /// This instruction set on a pool of its own of this many threads.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with_threads(isa: Isa, threads: usize) -> Result<Self> {
        Ok(Self::new(isa, Arc::new(Pool::new(threads)?)))
    }

    /// The instruction set and the pool that the whole process shares: the best the machine has
    /// and one thread a core, unless `LOOM_ISA` and `LOOM_NUM_THREADS` say otherwise.
    ///
    /// # Errors
    /// [`Error::Value`] where one of these variables names what there is not.
    pub fn global() -> Result<&'static Self> {
        static GLOBAL: LazyLock<std::result::Result<Cpu, String>> = LazyLock::new(|| {
            let isa = Isa::detect().map_err(|error| error.to_string())?;
            let pool = Pool::global().map_err(|error| error.to_string())?;
            Ok(Cpu::new(isa, pool))
        });
        GLOBAL.as_ref().map_err(|message| Error::Value(message.clone()))
    }

    /// The instruction set that kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads that kernels use.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
