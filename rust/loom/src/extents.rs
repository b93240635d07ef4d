//! How large things may be: the one place where extents are multiplied and bounded before anyone trusts them.
//!
//! Optimised builds do not check arithmetic, and kernels trust the extents that they are given. So the shape of
//! every value, parameter and state passes [`check`] when a network is built, whether it comes from code, from a
//! config or from a file, and every window passes [`check_reach`]. What has passed may be multiplied by the bytes
//! of an element or have borders put around it without wrapping; a batch's rows multiply it in [`bytes`], and
//! memory for it is asked for where asking can fail ([`zeros`], [`room`], [`Buffer`](crate::Buffer)).
//!
//! Before something has passed it is multiplied by [`product`] and `saturating_mul`, whose largest number never
//! does.

use crate::{Error, Result};
use bytemuck::Zeroable;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The most elements that one row of a value, a parameter or a state may have: 2^40.
pub const MOST_ELEMENTS: usize = 1 << 40;

/// The longest axis that a window may slide over, borders counted in, and the largest number that may describe
/// the window: 2^31 - 1, for GPUs count places in 32 bits, with a sign.
pub const MOST_REACH: usize = i32::MAX as usize;

/// The most parts that one layer may consist of, such as the layers of a recurrent stack: each has parameters
/// and steps of its own.
pub const MOST_PARTS: usize = 1 << 12;

/// The most levels of lists and objects that a layer's config may have, layers inside layers: JSON is read to a
/// depth of 128, and a network's config puts some around those of its layers.
pub const MOST_NESTED: usize = 120;

/// The product of extents; the largest number there is where it does not fit.
pub fn product(extents: &[usize]) -> usize {
    extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}

/// Refuses extents whose product, those of 0 left out, exceeds [`MOST_ELEMENTS`]; kernels multiply any of them.
///
/// # Errors
/// [`Error::Shape`] then, saying what has them.
pub fn check(what: impl fmt::Display, extents: &[usize]) -> Result<()> {
    let elements = extents.iter().fold(1usize, |product, extent| product.saturating_mul((*extent).max(1)));
    if elements <= MOST_ELEMENTS {
        return Ok(());
    }
    let extents: Vec<String> = extents.iter().map(name).collect();
    Err(Error::Shape(format!(
        "{what} of extents {} has more than 2^40 elements, the most there may be; use smaller extents",
        extents.join(" x ")
    )))
}

/// An extent in words; the largest number stands for products that do not fit.
fn name(extent: &usize) -> String {
    if *extent == usize::MAX { "2^64 or more".into() } else { extent.to_string() }
}

/// Refuses numbers of a window from [`MOST_REACH`] on.
///
/// # Errors
/// [`Error::Value`] then.
pub fn check_reach(what: &str, numbers: &[usize]) -> Result<()> {
    match numbers.iter().find(|number| **number > MOST_REACH) {
        None => Ok(()),
        Some(number) => Err(Error::Value(format!("{what} must be at most {MOST_REACH}, got {number}"))),
    }
}

/// The elements of `rows` rows of `each`.
///
/// # Errors
/// [`Error::Memory`] where no memory holds so many, of whatever type.
pub fn elements(what: impl fmt::Display, rows: usize, each: usize) -> Result<usize> {
    bytes(what, rows, each, size_of::<f64>()).map(|bytes| bytes / size_of::<f64>())
}

/// The bytes of `rows` rows of `each` elements of `size` bytes.
///
/// # Errors
/// [`Error::Memory`] where no memory holds so many.
pub fn bytes(what: impl fmt::Display, rows: usize, each: usize, size: usize) -> Result<usize> {
    let bytes = rows.checked_mul(each).and_then(|elements| elements.checked_mul(size));
    bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        Error::Memory(format!(
            "{what}: {rows} rows of {each} elements are more than any memory holds; use fewer rows or smaller \
             extents"
        ))
    })
}

/// So many zeros.
///
/// # Errors
/// [`Error::Memory`] where the system has no memory for them.
pub fn zeros<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| refused(len, size_of::<T>()))
}

/// A copy of elements.
///
/// # Errors
/// [`Error::Memory`] where the system has no memory for them.
pub fn copied<T: Copy>(elements: &[T]) -> Result<Vec<T>> {
    let mut copy = room(elements.len())?;
    copy.extend_from_slice(elements);
    Ok(copy)
}

/// An empty vector with room for so many elements.
///
/// # Errors
/// [`Error::Memory`] where the system has no memory for them.
pub fn room<T>(len: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| refused(len, size_of::<T>()))?;
    Ok(room)
}

/// Runs kernels. What their tasks unwind with for want of memory comes back as an error; a panic goes on.
pub(crate) fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| match payload.downcast::<Error>() {
        Ok(error) => Err(*error),
        Err(panic) => resume_unwind(panic),
    })
}

/// The error of memory that was asked for in vain.
pub(crate) fn refused(len: usize, size: usize) -> Error {
    let bytes = len.saturating_mul(size);
    Error::Memory(format!(
        "{bytes} bytes ({:.1} GiB) of memory were asked for, more than the system gives; use smaller batches or \
         smaller extents",
        bytes as f64 / f64::from(1 << 30)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hint::black_box;

    /// Extents near the numbers where arithmetic wraps or limits lie.
    fn extent() -> impl Strategy<Value = usize> {
        let near = (0u32..=64, -2i128..=2).prop_map(|(power, off)| {
            usize::try_from((1i128 << power) + off).unwrap_or(if power > 32 { usize::MAX } else { 0 })
        });
        prop_oneof![near, 0usize..9]
    }

    proptest! {
        #[test]
        fn what_passes_has_few_elements_and_what_does_not_has_many(extents in prop::collection::vec(extent(), 0..5)) {
            let exact = extents.iter().map(|extent| u128::from(*extent as u64).max(1)).try_fold(1u128, u128::checked_mul);
            let few = exact.is_some_and(|exact| exact <= 1 << 40);
            prop_assert_eq!(check("it", &extents).is_ok(), few);
            let zero = extents.contains(&0);
            let whole = if zero { Some(0) } else { exact };
            let expected = whole.and_then(|whole| usize::try_from(whole).ok()).unwrap_or(usize::MAX);
            prop_assert_eq!(product(&extents), expected);
        }

        #[test]
        fn bytes_are_those_of_wide_arithmetic(rows in extent(), each in extent(), size in 1usize..9) {
            let exact = (rows as u128).checked_mul(each as u128).and_then(|elements| elements.checked_mul(size as u128));
            let fits = exact.filter(|exact| *exact <= isize::MAX as u128);
            prop_assert_eq!(bytes("it", rows, each, size).ok().map(|bytes| bytes as u128), fits);
        }
    }

    #[test]
    fn a_task_without_memory_ends_in_an_error_and_a_panic_goes_on() {
        let pool = crate::simd::Pool::new(2).unwrap();
        let starve = || {
            // Seen by nobody, the memory would not be asked for in an optimised build.
            pool.run(8, &|_| drop(black_box(crate::Buffer::working::<f64>(1 << 58))));
            Ok(())
        };
        assert!(matches!(caught(starve), Err(Error::Memory(_))));
        let panics = || caught(|| -> Result<()> { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_that_says_how_much() {
        let far = 1 << 60;
        for error in
            [zeros::<f64>(far).unwrap_err(), room::<f64>(far).unwrap_err(), room::<f64>(1 << 61).unwrap_err()]
        {
            assert!(matches!(&error, Error::Memory(message) if message.contains("GiB")), "{error}");
        }
    }
}
