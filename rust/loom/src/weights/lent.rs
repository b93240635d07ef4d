//! Codes that a file holds: read where they lie, or made of what lies there once they are read.

use crate::tensor::Buffer;
use crate::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Bytes that stay where they are as long as this is held, such as those of a mapped file.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

type Make = Box<dyn Fn() -> Result<(Buffer, Buffer)> + Send + Sync>;

/// Codes and scales that are lent to a store. Copies share them.
#[derive(Clone)]
pub struct Lent(Kind);

#[derive(Clone)]
enum Kind {
    /// Codes as they lie there, of a type that has its scales among them or none.
    Whole(SharedBytes, Range<usize>),
    Made(Arc<Making>),
}

/// Codes and scales that are made when they are first read.
struct Making {
    make: Make,
    made: OnceLock<(Buffer, Buffer)>,
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(_, range) => write!(f, "Lent({} bytes)", range.len()),
            Kind::Made(making) => write!(f, "Lent(made: {})", making.made.get().is_some()),
        }
    }
}

impl Lent {
    /// Codes as they lie in these bytes.
    ///
    /// # Errors
    /// [`Error::Internal`] for a part that is not there.
    pub fn part(bytes: SharedBytes, range: Range<usize>) -> Result<Self> {
        match (*bytes).as_ref().get(range.clone()) {
            Some(_) => Ok(Self(Kind::Whole(bytes, range))),
            None => Err(Error::Internal(format!("what is lent does not hold the bytes {range:?}"))),
        }
    }

    /// Codes and scales that are made when they are first read, by whoever reads them.
    pub fn made(make: impl Fn() -> Result<(Buffer, Buffer)> + Send + Sync + 'static) -> Self {
        Self(Kind::Made(Arc::new(Making { make: Box::new(make), made: OnceLock::new() })))
    }

    /// The codes and the scales.
    pub(super) fn content(&self) -> Result<(&[u8], &[f32])> {
        match &self.0 {
            Kind::Whole(bytes, range) => Ok((&(**bytes).as_ref()[range.clone()], &[])),
            Kind::Made(making) => {
                if making.made.get().is_none() {
                    // Who comes second throws its own away.
                    let _ = making.made.set((making.make)()?);
                }
                let (codes, scales) =
                    making.made.get().ok_or_else(|| Error::Internal("what was lent was not made".into()))?;
                Ok((codes.bytes(), scales.as_slice()))
            }
        }
    }

    /// How many bytes of codes there are, where that is known before they are made.
    pub(super) fn extents(&self) -> Option<usize> {
        match &self.0 {
            Kind::Whole(_, range) => Some(range.len()),
            Kind::Made(_) => None,
        }
    }
}

/// Rows of bytes in an order of their own.
pub struct LentRows {
    sources: Vec<SharedBytes>,
    /// Bytes of each.
    row: usize,
    /// Which bytes each is in, and its number there.
    order: Vec<(u32, u32)>,
}

impl LentRows {
    /// Rows of so many bytes, each by the bytes that it is in and its number there.
    ///
    /// # Errors
    /// [`Error::Internal`] for a row that is not there.
    pub fn new(sources: Vec<SharedBytes>, row: usize, order: Vec<(u32, u32)>) -> Result<Self> {
        let is_there = |at: &(u32, u32)| {
            let end = (at.1 as usize).checked_add(1).and_then(|count| count.checked_mul(row));
            let bytes = sources.get(at.0 as usize).map_or(0, |bytes| (**bytes).as_ref().len());
            end.is_some_and(|end| end <= bytes)
        };
        match row > 0 && !order.is_empty() && order.iter().all(is_there) {
            true => Ok(Self { sources, row, order }),
            false => Err(Error::Internal("rows are lent that are not there".into())),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// The bytes of one.
    pub fn row(&self, number: usize) -> &[u8] {
        let (source, place) = self.order[number];
        &(*self.sources[source as usize]).as_ref()[place as usize * self.row..][..self.row]
    }

    /// The rows one behind the other: where they lie, if they lie so, and otherwise copied when they are first read.
    ///
    /// # Errors
    /// As [`Lent::part`].
    pub fn as_they_lie(self) -> Result<Lent> {
        let (source, first) = self.order[0];
        let follows =
            |(number, at): (usize, &(u32, u32))| at.0 == source && at.1 as usize == first as usize + number;
        if self.order.iter().enumerate().all(follows) {
            let start = first as usize * self.row;
            let bytes = self.sources[source as usize].clone();
            return Lent::part(bytes, start..start + self.order.len() * self.row);
        }
        Ok(Lent::made(move || {
            let mut codes = Buffer::lasting(self.order.len() * self.row)?;
            let rows = codes.bytes_mut().chunks_exact_mut(self.row).enumerate();
            rows.for_each(|(number, to)| to.copy_from_slice(self.row(number)));
            Ok((codes, Buffer::default()))
        }))
    }
}
