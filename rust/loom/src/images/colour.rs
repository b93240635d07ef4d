//! Images in other colours.

use super::kinds::{Change, Extents, Number, Pixel};

/// Sums that are not yet joined, so that additions do not wait for each other.
const LANES: usize = 16;

/// How bright the three colours are, by ITU-R 601.
const GREY: [f64; 3] = [0.299, 0.587, 0.114];

/// Writes an image with other colours, and without what is erased.
pub(super) fn coloured<I: Pixel, O: Pixel<Number = I::Number>>(
    image: &[I],
    out: &mut [O],
    extents: Extents,
    change: &Change,
    scale: f64,
) {
    let one = I::Number::of(1.0 / I::WHITE);
    let last = I::Number::of(if O::WHITE == 1.0 { scale } else { O::WHITE });
    match change.colours {
        // Bytes stay the bytes that they are.
        None if I::WHITE == O::WHITE && (O::WHITE > 1.0 || scale == 1.0) => {
            out.iter_mut().zip(image).for_each(|(out, pixel)| *out = O::nearest(pixel.number()));
        }
        None => {
            out.iter_mut().zip(image).for_each(|(out, pixel)| *out = O::nearest(pixel.number() * one * last));
        }
        Some(factors) => recolour(image, out, extents, factors, [one, last]),
    }
    if let Some([top, left, tall, wide]) = change.erased {
        let Extents { height, width, .. } = extents;
        let (bottom, right) = ((top + tall).min(height), (left + wide).min(width));
        for plane in out.chunks_exact_mut(extents.plane()) {
            for row in plane.chunks_exact_mut(width).take(bottom).skip(top) {
                row[left.min(right)..right].fill(O::default());
            }
        }
    }
}

/// With b, c and s the factors of brightness, contrast and saturation, all three together are
/// b c s x + b c (1 - s) grey + b (1 - c) mean, where the mean is that of the grey.
fn recolour<I: Pixel, O: Pixel<Number = I::Number>>(
    image: &[I],
    out: &mut [O],
    extents: Extents,
    [bright, contrast, saturation]: [f32; 3],
    [one, last]: [I::Number; 2],
) {
    let number = |value: f32| I::Number::of(f64::from(value));
    let (zero, white) = (number(0.0), number(1.0));
    let [bright, contrast] = [bright, contrast].map(number);
    let saturation = number(if extents.channels == 3 { saturation } else { 1.0 });
    let limited = |x: I::Number| {
        if x > white {
            white
        } else if x > zero {
            x
        } else {
            zero
        }
    };
    let plane = extents.plane();
    if contrast == white && saturation == white {
        for (out, pixel) in out.iter_mut().zip(image) {
            *out = O::nearest(limited(pixel.number() * one * bright) * last);
        }
        return;
    }
    let shares: Vec<I::Number> = match extents.channels {
        3 => GREY.map(I::Number::of).to_vec(),
        channels => vec![I::Number::of(1.0 / channels as f64); channels],
    };
    let grey = |at: usize| {
        let parts = shares.iter().enumerate();
        parts.fold(zero, |grey, (channel, share)| grey + image[channel * plane + at].number() * one * *share)
    };
    let mut sums = [zero; LANES];
    for start in (0..plane).step_by(LANES) {
        for (lane, at) in (start..plane.min(start + LANES)).enumerate() {
            sums[lane] = sums[lane] + grey(at);
        }
    }
    let total = sums.into_iter().fold(zero, |total, sum| total + sum);
    let mean = total * I::Number::of(1.0 / plane as f64);
    let (own, of_grey) = (bright * contrast * saturation, bright * contrast * (white - saturation));
    let of_mean = mean * (bright * (white - contrast));
    for at in 0..plane {
        let added = if saturation == white { of_mean } else { grey(at) * of_grey + of_mean };
        for channel in 0..extents.channels {
            let at = channel * plane + at;
            out[at] = O::nearest(limited(image[at].number() * one * own + added) * last);
        }
    }
}
