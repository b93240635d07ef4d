//! How much memory and time an input may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The system's allocator, which counts what each thread holds, and refuses [`LARGEST`] and more: who asks for that
/// is to expect to be refused.
pub struct Limited;

/// More than this is not given at once.
const LARGEST: usize = 1 << 28;

/// How long an input may take.
const LONGEST: Duration = Duration::from_secs(2);

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(size: isize) {
    // Threads that end free what they held after their counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + size);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: everything but what is too large is handed on to the system's allocator unchanged; a null pointer says that
// there is no memory.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGEST {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGEST {
            return std::ptr::null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Does something that may hold so many bytes more at once.
///
/// # Panics
/// Where it holds more, or takes longer than two seconds, and again two seconds of a processor of its own.
#[track_caller]
pub fn within<R>(bytes: usize, work: impl Fn() -> R) -> R {
    let before = HELD.get();
    PEAK.set(before);
    let start = Instant::now();
    let mut made = work();
    let held = usize::try_from(PEAK.get() - before).unwrap_or(0);
    if start.elapsed() > LONGEST {
        drop(made);
        let (start, computed) = (Instant::now(), computed());
        made = work();
        let took = computed.zip(self::computed()).map_or(start.elapsed(), |(before, after)| after - before);
        assert!(took <= LONGEST, "an input takes {took:?}");
    }
    assert!(held <= bytes, "an input takes {held} bytes, {bytes} are allowed");
    made
}

/// How long this thread has had a processor, where the system tells.
fn computed() -> Option<Duration> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    times.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
