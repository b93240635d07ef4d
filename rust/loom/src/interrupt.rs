//! Long work that somebody may want to end: who waits for it is asked from time to time whether it is to go on.

use crate::Result;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long work goes on without asking.
const PERIOD: Duration = Duration::from_millis(50);

type Ask = Rc<dyn Fn() -> Result<()>>;

/// Who is asked, how often, and when for the next time.
type Asked = (Ask, Duration, Instant);

thread_local! {
    /// Who is asked on this thread.
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
    /// Whether the work of this thread may be ended while it waits for something.
    static WELCOME: Cell<bool> = const { Cell::new(false) };
}

/// Puts back who was asked before.
struct Before(Option<Asked>);

impl Drop for Before {
    fn drop(&mut self) {
        ASKED.replace(self.0.take());
    }
}

/// Does work that ends with the error that `ask` returns, where it does: it is asked on this thread about every
/// 50 milliseconds, between layers, batches and parts of large draws.
///
/// Building a network and inference ask. What is interrupted has changed nothing.
///
/// ```
/// use loom::layers::Dense;
/// use loom::{Error, Network, interrupt};
///
/// let mut network = Network::sequential([2])?;
/// network.add([0, 0, 0], Dense::new(16))?;
/// interrupt::asking(|| Ok(()), || network.build())?;
/// # Ok::<(), Error>(())
/// ```
pub fn asking<R>(ask: impl Fn() -> Result<()> + 'static, work: impl FnOnce() -> R) -> R {
    asking_every(PERIOD, ask, work)
}

/// [`asking`] after each such time.
fn asking_every<R>(period: Duration, ask: impl Fn() -> Result<()> + 'static, work: impl FnOnce() -> R) -> R {
    let _before = Before(ASKED.replace(Some((Rc::new(ask), period, Instant::now() + period))));
    work()
}

/// Does work that changes nothing that stays, so that it may be ended while it waits for a device.
pub(crate) fn welcoming<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WELCOME.set(self.0);
        }
    }
    let _restore = Restore(WELCOME.replace(true));
    work()
}

/// Whether work may be ended while it waits, as it does for a GPU.
#[cfg(feature = "gpu")]
pub(crate) fn is_welcome() -> bool {
    WELCOME.get()
}

/// Asks, where it is time to.
///
/// # Errors
/// What who is asked answers.
pub(crate) fn check() -> Result<()> {
    let due = ASKED.with_borrow_mut(|asked| {
        let (ask, period, next) = asked.as_mut()?;
        let now = Instant::now();
        (now >= *next).then(|| {
            *next = now + *period;
            ask.clone()
        })
    });
    due.map_or(Ok(()), |ask| ask())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Lstm;
    use crate::{Error, Network};

    #[test]
    fn a_build_that_is_ended_changes_nothing() -> Result<()> {
        let mut network = Network::sequential([2, 3])?;
        network.add([0, 0, 0], Lstm::new(4))?;
        let refuse = || Err(Error::State("enough".into()));
        let ended = asking_every(Duration::ZERO, refuse, || network.build());
        assert!(matches!(ended, Err(Error::State(message)) if message == "enough"));
        assert!(!network.is_built());
        // Nobody is asked any more.
        network.build()
    }
}
