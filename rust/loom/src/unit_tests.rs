//! The unit tests that this build of the library has in it: `tests/unit.rs` runs them.

use std::fmt::Debug;

/// Every function under `#[test]`, put together by the linker.
#[linkme::distributed_slice]
pub static CASES: [Case];

/// A unit test.
pub struct Case {
    /// The path of its function.
    pub name: &'static str,
    /// Runs it; an error, or a panic, says what is wrong.
    pub run: fn() -> Result<(), String>,
    /// Whether it runs only where ignored ones are asked for.
    pub ignored: bool,
}

/// What a test's function gives back.
pub trait Outcome {
    /// Nothing where it passed.
    ///
    /// # Errors
    /// What was wrong, as text.
    fn outcome(self) -> Result<(), String>;
}

impl Outcome for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Debug> Outcome for Result<(), E> {
    fn outcome(self) -> Result<(), String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// What a test's function has given back, as the runner takes it.
///
/// # Errors
/// As [`Outcome::outcome`].
pub fn outcome(of: impl Outcome) -> Result<(), String> {
    of.outcome()
}
