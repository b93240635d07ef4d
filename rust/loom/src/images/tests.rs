//! Every change against plain formulas, pixel by pixel.

use super::*;
use proptest::prelude::*;

fn image(seed: u64, extents: Extents) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..extents.elements()).map(|_| next()).collect()
}

/// The pixel that is seen at a place, by the definition: backwards through every step.
fn seen(image: &[f64], extents: Extents, change: &Change, channel: usize, y: f64, x: f64) -> f64 {
    let Extents { height, width, .. } = extents;
    let (y, x) = (y - change.down as f64, x - change.right as f64);
    if y < 0.0 || x < 0.0 || y >= height as f64 || x >= width as f64 {
        return 0.0;
    }
    let y = if change.upside_down { height as f64 - 1.0 - y } else { y } as usize;
    let x = if change.mirrored { width as f64 - 1.0 - x } else { x } as usize;
    image[channel * height * width + y * width + x]
}

fn expected(image: &[u8], extents: Extents, change: &Change) -> Vec<f64> {
    let Extents { channels, height, width } = extents;
    let image: Vec<f64> = image.iter().map(|pixel| f64::from(*pixel) / 255.0).collect();
    let mut found = Vec::new();
    for channel in 0..channels {
        for y in 0..height {
            for x in 0..width {
                found.push(seen(&image, extents, change, channel, y as f64, x as f64));
            }
        }
    }
    if let Some([bright, contrast, saturation]) = change.colours {
        let [bright, contrast, saturation] = [bright, contrast, saturation].map(f64::from);
        let plane = height * width;
        let grey: Vec<f64> = (0..plane)
            .map(|at| match channels {
                3 => 0.299 * found[at] + 0.587 * found[plane + at] + 0.114 * found[2 * plane + at],
                _ => (0..channels).map(|channel| found[channel * plane + at]).sum::<f64>() / channels as f64,
            })
            .collect();
        let mean = grey.iter().sum::<f64>() / plane as f64;
        for (at, value) in found.iter_mut().enumerate() {
            let grey = grey[at % plane];
            let vivid = if channels == 3 { grey + saturation * (*value - grey) } else { *value };
            *value = (bright * (mean + contrast * (vivid - mean))).clamp(0.0, 1.0);
        }
    }
    if let Some([top, left, tall, wide]) = change.erased {
        for (at, value) in found.iter_mut().enumerate() {
            let (y, x) = (at / width % height, at % width);
            if (top..top + tall).contains(&y) && (left..left + wide).contains(&x) {
                *value = 0.0;
            }
        }
    }
    found
}

fn any_change() -> impl Strategy<Value = Change> {
    let colours =
        proptest::option::of((0.5f32..1.5, 0.5f32..1.5, 0.5f32..1.5).prop_map(|(b, c, s)| [b, c, s]));
    let erased = proptest::option::of(
        (0..6usize, 0..6usize, 1..5usize, 1..5usize).prop_map(|(a, b, c, d)| [a, b, c, d]),
    );
    (any::<bool>(), any::<bool>(), -12..12i64, -12..12i64, colours, erased).prop_map(
        |(mirrored, upside_down, down, right, colours, erased)| Change {
            mirrored,
            upside_down,
            down,
            right,
            turn: None,
            colours,
            erased,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn images_are_what_the_formulas_say(
        seed: u64, channels in 1..5usize, height in 1..10usize, width in 1..10usize, change in any_change(),
    ) {
        let extents = Extents { channels, height, width };
        let image = image(seed, extents);
        let expected = expected(&image, extents, &change);
        let mut real = vec![0f32; image.len()];
        super::change(&image, &mut real, extents, &[change], 1.0).expect("it fits");
        for (found, expected) in real.iter().zip(&expected) {
            prop_assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
        }
        let mut scaled = vec![0f32; image.len()];
        super::change(&image, &mut scaled, extents, &[change], 255.0).expect("it fits");
        let mut bytes = vec![0u8; image.len()];
        super::change(&image, &mut bytes, extents, &[change], 1.0).expect("it fits");
        for (byte, scaled) in bytes.iter().zip(&scaled) {
            prop_assert!((f32::from(*byte) - scaled).abs() <= 0.5001);
        }
        let wide: Vec<f64> = image.iter().map(|pixel| f64::from(*pixel) / 255.0).collect();
        let mut found = vec![0f64; image.len()];
        super::change(&wide, &mut found, extents, &[change], 1.0).expect("it fits");
        for (found, expected) in found.iter().zip(&expected) {
            // Factors come in single precision.
            prop_assert!((found - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn turned_images_are_interpolated(seed: u64, height in 1..9usize, width in 1..9usize, angle in -3.2f32..3.2) {
        let extents = Extents { channels: 2, height, width };
        let image: Vec<f64> = image(seed, extents).iter().map(|pixel| f64::from(*pixel)).collect();
        let turn = Change { turn: Some([angle.sin(), angle.cos()]), ..Change::NONE };
        let mut found = vec![0f64; image.len()];
        super::change(&image, &mut found, extents, &[turn], 1.0).expect("it fits");
        let pixel = |channel: usize, y: f64, x: f64| seen(&image, extents, &Change::NONE, channel, y, x);
        let (sine, cosine) = (f64::from(angle.sin()), f64::from(angle.cos()));
        let (middle_y, middle_x) = ((height as f64 - 1.0) / 2.0, (width as f64 - 1.0) / 2.0);
        for (at, found) in found.iter().enumerate() {
            let (channel, row, column) = (at / (height * width), at / width % height, at % width);
            let (down, right) = (row as f64 - middle_y, column as f64 - middle_x);
            let (y, x) = (cosine * down + sine * right + middle_y, cosine * right - sine * down + middle_x);
            let (top, left) = (y.floor(), x.floor());
            let (below, beside) = (y - top, x - left);
            let upper = pixel(channel, top, left) * (1.0 - beside) + pixel(channel, top, left + 1.0) * beside;
            let lower = pixel(channel, top + 1.0, left) * (1.0 - beside) + pixel(channel, top + 1.0, left + 1.0) * beside;
            let expected = upper * (1.0 - below) + lower * below;
            // Places are in single precision, of images from 0 to 255.
            prop_assert!((found - expected).abs() < 2e-3, "{found} {expected}");
        }
    }
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let extents = Extents { channels: 1, height: 2, width: 2 };
    let refused = change(&[0u8; 8], &mut [0f32; 8], extents, &[Change::NONE], 1.0).expect_err("one change");
    assert!(refused.to_string().contains("1 changes of 4 elements each, but 8 elements"), "{refused}");
}
