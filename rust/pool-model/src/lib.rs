//! The protocol of loom's thread pool under a model checker: what is proved holds for every order in which threads may
//! take their steps, as far as these are bounded, and for whatever a load may return by the memory model.
//!
//! The protocol is the very file of the pool. Its primitives are the checker's.

#![cfg(test)]

#[path = "../../loom/src/simd/pool/protocol.rs"]
mod protocol;

/// What `rust/loom/src/simd/pool/primitives.rs` has, made of the checker's primitives.
mod primitives {
    pub(super) use checker::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use checker::thread::yield_now;

    use checker::cell::UnsafeCell;
    use checker::sync::atomic::{self, fence};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    /// The checker takes sequentially consistent accesses for acquiring and releasing ones alone; a fence on either
    /// side makes up for that.
    fn fenced<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
        let consistent = order == Ordering::SeqCst;
        if consistent {
            fence(Ordering::SeqCst);
        }
        let made = access();
        if consistent {
            fence(Ordering::SeqCst);
        }
        made
    }

    macro_rules! atomics {
        ($($name:ident of $value:ty: $($change:ident)*;)*) => {$(
            pub(super) struct $name(atomic::$name);

            impl $name {
                pub(super) fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }

                pub(super) fn load(&self, order: Ordering) -> $value {
                    fenced(order, || self.0.load(order))
                }

                pub(super) fn store(&self, value: $value, order: Ordering) {
                    fenced(order, || self.0.store(value, order));
                }

                $(pub(super) fn $change(&self, value: $value, order: Ordering) -> $value {
                    fenced(order, || self.0.$change(value, order))
                })*
            }
        )*};
    }

    atomics! {
        AtomicBool of bool: swap;
        AtomicUsize of usize: fetch_add fetch_sub;
        AtomicU64 of u64: fetch_sub fetch_and fetch_or;
    }

    impl AtomicU64 {
        pub(super) fn compare_exchange_weak(
            &self,
            from: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange_weak(from, to, success, failure)
        }
    }

    /// A value whose every access is checked against those of others.
    pub(super) struct Slot<T>(UnsafeCell<T>);

    impl<T: Copy> Slot<T> {
        pub(super) fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }

        /// # Safety
        /// No other thread uses it meanwhile.
        pub(super) unsafe fn put(&self, value: T) {
            // SAFETY: the caller says so, and the checker looks.
            self.0.with_mut(|held| unsafe { *held = value });
        }

        /// # Safety
        /// No other thread puts something in meanwhile.
        pub(super) unsafe fn get(&self) -> T {
            // SAFETY: the caller says so, and the checker looks.
            self.0.with(|held| unsafe { *held })
        }
    }

    /// Patience that ends at once: sleep is what there is to prove something about, and a turn more is as good as none.
    pub(super) struct Watch;

    impl Watch {
        pub(super) fn new(_give_way: bool) -> Self {
            Self
        }

        pub(super) fn turn(&mut self) -> Duration {
            Duration::MAX
        }
    }

    pub(super) struct FloatControl;

    impl FloatControl {
        pub(super) fn standard() -> Self {
            Self
        }
    }
}

mod tests;
