//! Images that are changed before a network sees them: mirrored, moved, turned, recoloured, with pieces left out.
//!
//! Nothing is drawn here: a [`Change`] says what is done to one image. The results depend on it and the image alone, in
//! plain arithmetic that has the same bits on every processor.

mod colour;
mod geometry;
mod kinds;
#[cfg(test)]
mod tests;

pub use kinds::{Change, Extents, Number, Pixel};

use crate::{Error, Result};

/// Images as they are changed, each by its own; `images` and `out` are (images, channels, height, width).
///
/// Numbers that come out are those of the input from 0 to 1, times `scale`; bytes are bytes.
///
/// # Errors
/// [`Error::Shape`] for arrays of other lengths.
pub fn change<I: Pixel, O: Pixel<Number = I::Number>>(
    images: &[I],
    out: &mut [O],
    extents: Extents,
    changes: &[Change],
    scale: f64,
) -> Result<()> {
    let elements = extents.elements();
    if images.len() != changes.len() * elements || out.len() != images.len() {
        return Err(Error::Shape(format!(
            "{} changes of {elements} elements each, but {} elements and room for {}",
            changes.len(),
            images.len(),
            out.len()
        )));
    }
    if elements == 0 {
        return Ok(());
    }
    let mut spare = [Vec::new(), Vec::new()];
    for ((image, out), change) in
        images.chunks_exact(elements).zip(out.chunks_exact_mut(elements)).zip(changes)
    {
        let moved = geometry::moved(image, extents, change, &mut spare);
        colour::coloured(moved, out, extents, change, scale);
    }
    Ok(())
}
