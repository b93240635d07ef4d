//! Scales by percentiles and by least error, and stochastic rounding.

use super::*;
use crate::dtype::testing::sample_with;
use crate::simd::Cpu;

fn scaled() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| dtype.row().granularity != Granularity::Unscaled && !dtype.is_block_format())
}

/// Normal numbers of which some are far out, as weights have them.
fn heavy(seed: u64, len: usize) -> Vec<f32> {
    let mut data = single(&normal(seed, len));
    data.iter_mut().step_by(37).for_each(|value| *value *= 6.0);
    data
}

fn by(calibration: Calibration) -> Rule<'static> {
    Rule { calibration, ..Rule::default() }
}

/// The weighted squared error of each group, decoded in the precision that scales are tried in.
fn errors(found: &Sample, data: &[f32], importance: &[f32]) -> Vec<f64> {
    let mut errors = vec![0.0; found.packing.groups()];
    for (index, (value, held)) in data.iter().zip(found.decoded::<f32>()).enumerate() {
        let weight = importance.get(index / found.packing.channels).map_or(1.0, |weight| f64::from(*weight));
        errors[group(&found.packing, index)] += (f64::from(*value) - f64::from(held)).powi(2) * weight;
    }
    errors
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// No group's error is larger than by the type's own rule, weighted or not; and over many weights it is
    /// smaller where there are few codes.
    #[test]
    fn least_error_is_never_worse(rows in 1usize..60, channels in 1usize..9, seed: u64, exponent in -20i32..12) {
        let data: Vec<f32> =
            heavy(seed, rows * channels).into_iter().map(|x| x * 2f32.powi(exponent)).collect();
        let importance: Vec<f32> = heavy(seed ^ 1, rows).into_iter().map(|x| x * x).collect();
        for dtype in scaled() {
            for granularity in granularities(dtype) {
                for importance in [&[][..], &importance, &vec![0.0; rows]] {
                    let rule = Rule { importance, ..by(Calibration::Mse) };
                    let own = sample_by(dtype, granularity, &data, channels);
                    let least = sample_with(dtype, granularity, &rule, &data, channels);
                    let found = errors(&least, &data, importance).into_iter();
                    for (found, own) in found.zip(errors(&own, &data, importance)) {
                        // Sums are in another order than those of the search.
                        prop_assert!(found <= own * (1.0 + 1e-12), "{dtype} {granularity:?}: {found} {own}");
                    }
                }
            }
        }
    }

    /// Where the type's rule takes the largest magnitude, the percentile stands, as sorting finds it.
    #[test]
    fn percentiles_are_those_of_sorted_magnitudes(rows in 1usize..70, channels in 1usize..5, seed: u64, percent in 1.0f64..100.0) {
        let data = heavy(seed, rows * channels);
        let found = sample_with(DType::Int8, None, &by(Calibration::Percentile(percent)), &data, channels);
        for channel in 0..channels {
            let mut magnitudes: Vec<f64> =
                data.iter().skip(channel).step_by(channels).map(|x| f64::from(x.abs())).collect();
            magnitudes.sort_by(f64::total_cmp);
            let place = (rows - 1) as f64 * (percent / 100.0);
            let (low, part) = (place.floor() as usize, place.fract());
            let high = magnitudes[(low + 1).min(rows - 1)];
            let expected = (magnitudes[low] + (high - magnitudes[low]) * part) / 127.0;
            let scale = f64::from(found.scales[channel]);
            prop_assert!((scale - expected).abs() <= expected * 3e-7, "{scale} {expected}");
        }
        for dtype in scaled().filter(|dtype| !matches!(dtype.row().kind, Kind::Ternary | Kind::Binary)) {
            for granularity in granularities(dtype) {
                let whole = by(Calibration::Percentile(100.0));
                let whole = sample_with(dtype, granularity, &whole, &data, channels);
                let own = sample_by(dtype, granularity, &data, channels);
                prop_assert_eq!(whole.bytes(), own.bytes(), "{}", dtype);
            }
        }
    }
}

#[test]
fn fewer_codes_gain_by_a_search() {
    let data = heavy(5, 4000);
    for dtype in [DType::Int4, DType::Int2, DType::Uint2, DType::Uint4, DType::Ternary] {
        let own = sample(dtype, &data, 4);
        let least = sample_with(dtype, None, &by(Calibration::Mse), &data, 4);
        let sum = |sample: &Sample| errors(sample, &data, &[]).iter().sum::<f64>();
        assert!(sum(&least) < 0.9 * sum(&own), "{dtype}: {} {}", sum(&least), sum(&own));
    }
    // What binary decodes to has the least error already where all weights count the same.
    let importance: Vec<f32> = (0..1000).map(|row| (row % 7) as f32).collect();
    let rule = Rule { importance: &importance, ..by(Calibration::Mse) };
    let least = sample_with(DType::Binary, None, &rule, &data, 4);
    for channel in 0..4 {
        let own = || data.iter().skip(channel).step_by(4).zip(&importance);
        let weights: f64 = own().map(|(_, weight)| f64::from(*weight)).sum();
        let mean: f64 =
            own().map(|(x, weight)| f64::from(x.abs()) * f64::from(*weight)).sum::<f64>() / weights;
        assert!((f64::from(least.scales[channel]) - mean).abs() < 1e-6 * mean);
    }
}

#[test]
fn percentiles_of_zeros_are_left_alone() {
    let mut data = vec![0.0f32; 100];
    data[7] = 3.0;
    let found = sample_with(DType::Int8, None, &by(Calibration::Percentile(50.0)), &data, 1);
    assert_eq!(found.decoded::<f32>()[7], 3.0);
}

/// Instruction sets and thread counts make no difference, for scales and draws alike.
#[test]
fn recipes_give_the_same_codes_everywhere() {
    let stream = Stream::new(3, 9, 4, Use::Rounding);
    for (rows, channels) in [(1, 1), (67, 5), (40, 450)] {
        let double: Vec<f64> = heavy(8, rows * channels).into_iter().map(f64::from).collect();
        let data = single(&double);
        let importance: Vec<f32> = (0..rows).map(|row| (row % 5) as f32).collect();
        for dtype in DType::all() {
            for calibration in [Calibration::AbsMax, Calibration::Percentile(97.5), Calibration::Mse] {
                let recipe = Recipe { calibration, rounding: Rounding::Stochastic, ..Recipe::default() };
                // Searches take long: over many weights for a few kinds of types only.
                let few = [DType::Int4, DType::Uint8, DType::Float8E4M3, DType::Ternary];
                let long = rows * channels > 1000 && calibration == Calibration::Mse && !few.contains(&dtype);
                if recipe.checked(dtype).is_err() || long {
                    continue;
                }
                let rule = Rule { calibration, importance: &importance, draws: Some(stream) };
                for granularity in granularities(dtype) {
                    let expected = sample_with(dtype, granularity, &rule, &data, channels);
                    for isa in Isa::available() {
                        let cpu = Cpu::with_threads(isa, 3).unwrap();
                        let mut bytes = vec![0; expected.bytes().len()];
                        let mut scales = vec![0.0; expected.scales.len()];
                        let packing = expected.packing;
                        packing.encode_by_rule(&rule, Some(&cpu), &data, &mut bytes, &mut scales).unwrap();
                        assert!(bytes == expected.bytes(), "{dtype} on {isa:?} by {calibration}");
                        let bits = |scales: &[f32]| scales.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        assert_eq!(
                            bits(&scales),
                            bits(&expected.scales),
                            "{dtype} on {isa:?} by {calibration}"
                        );
                    }
                }
            }
        }
    }
}

/// Every draw is one of the two numbers around the weight, and their mean is the weight.
#[test]
fn draws_are_neighbours_and_unbiased() {
    const DRAWS: u64 = 600;
    // Weights of any size below the largest, and some that codes stand for.
    let mut data = single(&normal(21, 96));
    data.extend([4.0, -4.0, 0.0, 1e-3, -2.5]);
    let channels = 1;
    for dtype in DType::all().filter(|dtype| !dtype.is_block_format()) {
        let drawn = |step: u64| -> Vec<f64> {
            let draws = Some(Stream::new(1, step, 2, Use::Rounding));
            sample_with(dtype, None, &Rule { draws, ..Rule::default() }, &data, channels).decoded()
        };
        let mut seen: Vec<Vec<f64>> = vec![Vec::new(); data.len()];
        let (mut sums, mut squares) = (vec![0.0; data.len()], vec![0.0; data.len()]);
        for step in 0..DRAWS {
            for (index, value) in drawn(step).into_iter().enumerate() {
                if !seen[index].contains(&value) {
                    seen[index].push(value);
                }
                sums[index] += value;
                squares[index] += value * value;
            }
        }
        assert_eq!(drawn(5), drawn(5));
        let nearest: Vec<f64> = sample(dtype, &data, channels).decoded();
        let reach = nearest.iter().fold(0.0f64, |reach, x| reach.max(x.abs()));
        for (index, value) in data.iter().map(|value| f64::from(*value)).enumerate() {
            let mut seen = seen[index].clone();
            seen.sort_by(f64::total_cmp);
            let slack = 1e-6 * reach;
            assert!(seen.len() <= 2, "{dtype}: {value} became any of {seen:?}");
            let within = value.abs() <= reach;
            let sides = [seen[0], seen[seen.len() - 1]];
            if within {
                assert!(sides[0] <= value + slack || sides[0] == nearest[index], "{dtype}: {value} {seen:?}");
                assert!(sides[1] >= value - slack || sides[1] == nearest[index], "{dtype}: {value} {seen:?}");
            }
            assert!(seen.contains(&nearest[index]) || seen.len() == 1, "{dtype}: {value} {seen:?}");
            // No number that codes stand for lies between the two.
            if dtype.row().bits <= 8 && seen.len() == 2 {
                let first = sample(dtype, &data, channels);
                for other in representable(&first, index) {
                    let scale = scale(&first, index);
                    let between = other > sides[0] + slack && other < sides[1] - slack;
                    assert!(!(between && is_emitted(dtype, other, scale)), "{dtype}: {other} in {sides:?}");
                }
            }
            if within && seen.len() == 2 {
                let (mean, count) = (sums[index] / DRAWS as f64, DRAWS as f64);
                let variance = (squares[index] / count - mean * mean).max(0.0);
                let error = 5.0 * (variance / count).sqrt() + slack;
                assert!((mean - value).abs() <= error, "{dtype}: the mean of {value} is {mean} +- {error}");
            }
        }
        let wide = dtype.row().bits >= 32;
        assert!(wide || seen.iter().any(|seen| seen.len() == 2), "{dtype} never drew");
    }
}

#[test]
fn recipes_that_cannot_be_are_refused_by_name() {
    let recipe = |calibration, rounding| Recipe { granularity: None, calibration, rounding };
    for dtype in DType::all() {
        assert!(Recipe::default().checked(dtype).is_ok());
        for calibration in [Calibration::Percentile(99.0), Calibration::Mse] {
            let found = recipe(calibration, Rounding::Nearest).checked(dtype);
            let mean = matches!(dtype.row().kind, Kind::Ternary | Kind::Binary);
            let refused = scaled().all(|scaled| scaled != dtype) || mean && calibration != Calibration::Mse;
            assert_eq!(found.is_err(), refused, "{dtype} {calibration}");
            if let Err(error) = found {
                let message = error.to_string();
                assert!(matches!(error, Error::DType(_)) && message.contains(dtype.name()), "{message}");
            }
        }
        let found = recipe(Calibration::AbsMax, Rounding::Stochastic).checked(dtype);
        assert_eq!(found.is_err(), dtype.is_block_format(), "{dtype}");
    }
    for (text, calibration) in [
        ("absmax", Calibration::AbsMax),
        ("mse", Calibration::Mse),
        ("percentile(99.5)", Calibration::Percentile(99.5)),
        ("percentile(99.9)", Calibration::Percentile(99.9)),
    ] {
        assert_eq!(text.parse::<Calibration>().unwrap(), calibration);
        assert_eq!(calibration.to_string(), text);
    }
    assert_eq!("percentile".parse::<Calibration>().unwrap(), Calibration::Percentile(99.9));
    for text in ["max", "percentile(0)", "percentile(101)", "percentile(nan)", "percentile()", "percentile(9"]
    {
        assert!(matches!(text.parse::<Calibration>(), Err(Error::Value(_))), "{text}");
    }
    assert!("random".parse::<Rounding>().unwrap_err().to_string().contains("stochastic"));
}
