//! Memory for what is read whole again and again, such as weights: in large pages, where the system has such.
//!
//! A core reads memory in pages of 4 KiB at little more than half the speed of pages of 2 MiB, since what it fetches
//! ahead ends with a page. The weights of one product are often smaller than a large page, so those of a network
//! share chunks of many.

use crate::{Result, extents};
use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// 64 bytes on their own cache line: the unit of memory.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct CacheLine([u8; 64]);

/// Bytes of a chunk that is shared.
const CHUNK: usize = 64 << 20;
/// What chunks are a multiple of.
const CHUNK_ALIGNMENT: usize = 4096;
/// Bytes that are worth a chunk of their own.
pub(crate) const LARGE: usize = 2 << 20;
/// Fewer bytes than this stay in the caches, and are allocated as others are.
pub(crate) const LEAST: usize = 64 << 10;

/// Lines that parts are cut from, each once.
struct Chunk {
    memory: MmapMut,
    first: *mut CacheLine,
    lines: usize,
}

// SAFETY: it owns its lines, which its parts alone give out, each line to one part.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(bytes: usize) -> Result<Self> {
        let bytes =
            bytes.checked_next_multiple_of(CHUNK_ALIGNMENT).ok_or_else(|| extents::refused(bytes, 1))?;
        let mut memory = MmapMut::map_anon(bytes).map_err(|_| extents::refused(bytes, 1))?;
        // Before anything is written there. Where the system refuses, pages are small, and all else is the same.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        // Lines are aligned, as pages are.
        let first = memory.as_mut_ptr().cast();
        Ok(Self { memory, first, lines: bytes / size_of::<CacheLine>() })
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.memory.len())
    }
}

/// Lines of a chunk that are nobody else's.
#[derive(Debug)]
pub(crate) struct Part {
    chunk: Arc<Chunk>,
    first: usize,
    lines: usize,
}

/// The chunk that parts are cut from now, and how many of its lines are taken; it goes with the last of its parts.
static CURRENT: Mutex<(Weak<Chunk>, usize)> = Mutex::new((Weak::new(), 0));

impl Part {
    /// Lines of zeros for so many bytes, in a chunk of their own.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where the system has no memory for them.
    pub(crate) fn alone(bytes: usize) -> Result<Self> {
        let lines = bytes.div_ceil(size_of::<CacheLine>());
        Ok(Self { chunk: Arc::new(Chunk::new(bytes)?), first: 0, lines })
    }

    /// The same where small ones share a chunk, which stays as long as one of them does.
    ///
    /// # Errors
    /// As `alone`.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self> {
        if bytes > CHUNK / 4 {
            return Self::alone(bytes);
        }
        let lines = bytes.div_ceil(size_of::<CacheLine>());
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let found = current.0.upgrade().filter(|chunk| chunk.lines - current.1 >= lines);
        let (chunk, first) = match found {
            Some(chunk) => (chunk, current.1),
            None => (Arc::new(Chunk::new(CHUNK)?), 0),
        };
        *current = (Arc::downgrade(&chunk), first + lines);
        Ok(Self { chunk, first, lines })
    }

    /// Lines of zeros for so many bytes each, one after the other in a chunk that goes with the last of them.
    ///
    /// # Errors
    /// As `alone`.
    pub(crate) fn together(bytes: &[usize]) -> Result<Vec<Self>> {
        let lines: Vec<usize> = bytes.iter().map(|bytes| bytes.div_ceil(size_of::<CacheLine>())).collect();
        let all = lines.iter().try_fold(0usize, |all, lines| all.checked_add(*lines));
        let all = all.and_then(|all| all.checked_mul(size_of::<CacheLine>()));
        let chunk = Arc::new(Chunk::new(all.ok_or_else(|| extents::refused(usize::MAX, 1))?.max(1))?);
        let mut next = 0;
        let part = |lines: usize| {
            let first = next;
            next += lines;
            Self { chunk: chunk.clone(), first, lines }
        };
        Ok(lines.into_iter().map(part).collect())
    }

    /// The lines.
    pub(crate) fn lines(&self) -> &[CacheLine] {
        // SAFETY: lines of the chunk, which lives as long as this; nobody else has them.
        unsafe { std::slice::from_raw_parts(self.chunk.first.add(self.first), self.lines) }
    }

    /// The lines, to write.
    pub(crate) fn lines_mut(&mut self) -> &mut [CacheLine] {
        // SAFETY: as in `lines`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.first.add(self.first), self.lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_zeros_of_their_own_and_outlive_each_other() {
        let sizes = [LEAST, 1 << 20, CHUNK / 4, CHUNK / 4, CHUNK / 4, CHUNK / 4 + 1, 3];
        let mut parts: Vec<Part> = sizes.iter().map(|bytes| Part::zeroed(*bytes).unwrap()).collect();
        parts.extend(Part::together(&sizes).unwrap());
        for (number, part) in parts.iter_mut().enumerate() {
            assert!(bytemuck::cast_slice::<_, u8>(part.lines()).iter().all(|byte| *byte == 0));
            bytemuck::cast_slice_mut::<_, u8>(part.lines_mut()).fill(number as u8 + 1);
        }
        let last = parts.pop().unwrap();
        for (number, part) in parts.iter().enumerate() {
            assert!(bytemuck::cast_slice::<_, u8>(part.lines()).iter().all(|byte| *byte == number as u8 + 1));
        }
        drop(parts);
        assert!(
            bytemuck::cast_slice::<_, u8>(last.lines()).iter().all(|byte| *byte == 2 * sizes.len() as u8)
        );
    }
}
