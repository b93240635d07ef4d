//! Images in other places.

use super::kinds::{Change, Extents, Number, Pixel};

/// The image mirrored, moved and turned, in one of the two spare ones, or as it is.
pub(super) fn moved<'a, P: Pixel>(
    image: &'a [P],
    extents: Extents,
    change: &Change,
    spare: &'a mut [Vec<P>; 2],
) -> &'a [P] {
    let [first, second] = spare;
    let still = !change.mirrored && !change.upside_down && change.down == 0 && change.right == 0;
    let placed = if still {
        image
    } else {
        place(image, extents, change, first);
        first
    };
    match change.turn {
        None => placed,
        Some(angle) => {
            turn(placed, extents, angle, second);
            second
        }
    }
}

/// Mirrors and moves.
fn place<P: Pixel>(image: &[P], extents: Extents, change: &Change, out: &mut Vec<P>) {
    let Extents { height, width, .. } = extents;
    out.clear();
    out.resize(image.len(), P::default());
    // Where the first and the last pixel of the image go that stay in it.
    let seen = |by: i64, extent: usize| {
        let by = by.clamp(-(extent as i64), extent as i64);
        (by.max(0) as usize, (-by).max(0) as usize, extent - by.unsigned_abs() as usize)
    };
    let (top, skipped, rows) = seen(change.down, height);
    let (left, before, columns) = seen(change.right, width);
    for (image, out) in image.chunks_exact(height * width).zip(out.chunks_exact_mut(height * width)) {
        for row in 0..rows {
            let from = skipped + row;
            let from = if change.upside_down { height - 1 - from } else { from };
            let from = &image[from * width..(from + 1) * width];
            let to = &mut out[(top + row) * width + left..][..columns];
            if change.mirrored {
                // Column c of the mirrored image is column width - 1 - c of the image.
                let from = &from[width - before - columns..width - before];
                to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
            } else {
                to.copy_from_slice(&from[before..before + columns]);
            }
        }
    }
}

/// Turns around the middle, between four pixels each; outside of the image are zeros.
fn turn<P: Pixel>(image: &[P], extents: Extents, [sine, cosine]: [f32; 2], out: &mut Vec<P>) {
    let Extents { channels, height, width } = extents;
    let plane = extents.plane();
    out.clear();
    out.resize(image.len(), P::default());
    let (middle_y, middle_x) = ((height as f32 - 1.0) / 2.0, (width as f32 - 1.0) / 2.0);
    for row in 0..height {
        let down = row as f32 - middle_y;
        for column in 0..width {
            let right = column as f32 - middle_x;
            let y = (cosine * down + sine * right + middle_y).clamp(-1.0, height as f32);
            let x = (cosine * right - sine * down + middle_x).clamp(-1.0, width as f32);
            let (top, left) = (y.floor(), x.floor());
            let (below, beside) = (P::Number::of(f64::from(y - top)), P::Number::of(f64::from(x - left)));
            let (top, left) = (top as isize, left as isize);
            let inside = top >= 0 && left >= 0 && top + 1 < height as isize && left + 1 < width as isize;
            let to = row * width + column;
            for channel in 0..channels {
                let image = &image[channel * plane..(channel + 1) * plane];
                let corners = if inside {
                    let at = top as usize * width + left as usize;
                    [image[at], image[at + 1], image[at + width], image[at + width + 1]].map(P::number)
                } else {
                    let pixel = |y: isize, x: isize| {
                        let inside = y >= 0 && x >= 0 && y < height as isize && x < width as isize;
                        if inside {
                            image[y as usize * width + x as usize].number()
                        } else {
                            P::Number::of(0.0)
                        }
                    };
                    [pixel(top, left), pixel(top, left + 1), pixel(top + 1, left), pixel(top + 1, left + 1)]
                };
                let [first, second, third, fourth] = corners;
                let upper = first + (second - first) * beside;
                let lower = third + (fourth - third) * beside;
                out[channel * plane + to] = P::nearest(upper + (lower - upper) * below);
            }
        }
    }
}
