//! The measures against plain formulas, and the GPU's against the CPU's.

use super::*;
use crate::ops::testing::{Data, Setting, assert_close, numbers};
use crate::simd::Real;

fn plain<T: Real>(a: &[T], t: &[f64]) -> [f64; 5] {
    let mut sums = [0.0; 5];
    sums[4] = a.len() as f64;
    for (a, t) in a.iter().zip(t) {
        let a = a.to_f64();
        for (sum, x) in sums.iter_mut().zip([a * a, a * t, t * t, (a - t) * (a - t)]) {
            *sum += x;
        }
    }
    sums
}

fn sums<T: Real>(len: usize, tolerance: f64) {
    let (a, other) = (numbers::<T>(1, len), numbers::<T>(2, len));
    let wide: Vec<f64> = other.iter().map(|x| x.to_f64()).collect();
    let target = Setting::new(1, &[&a, &other], &[5]).result(&Measure::of(Measured::Target));
    assert_close(&target, &plain(&a, &wide), tolerance * len as f64);
    let mut setting = Setting::new(1, &[&a, &other], &[5]);
    setting.values.batch_rows = 3;
    let what = Measured::Gradient(Term::fixed(-0.1).times_rows());
    let moved: Vec<f64> = a.iter().zip(&wide).map(|(a, g)| a.to_f64() - 0.1 * 3.0 * g).collect();
    assert_close(&setting.result(&Measure::of(what)), &plain(&a, &moved), tolerance * len as f64);
    let norm = Setting::new(1, &[&a], &[5]).result(&Measure::of(Measured::Norm));
    assert_close(&norm, &[plain(&a, &wide)[0], 0.0, 0.0, 0.0, len as f64], tolerance * len as f64);
}

#[test]
fn sums_are_those_of_the_formula() {
    for len in [1, 15, 16, 17, 4096, 4097, 700_001] {
        sums::<f32>(len, 2e-7);
        sums::<f64>(len, 1e-15);
    }
}

/// Steps of some elements, of which those count whose number is not 0.
fn steps<T: Real>(steps: usize, length: usize) -> Setting<T> {
    let mut mask = numbers::<T>(3, steps);
    mask.iter_mut().step_by(3).for_each(|real| *real = T::ZERO);
    Setting::new(1, &[&numbers(1, steps * length), &numbers(2, steps * length), &mask], &[5])
}

#[test]
fn steps_that_are_padding_do_not_count() {
    for (count, length) in [(1, 1), (2, 7), (4099, 3), (70, 1001)] {
        let setting = steps::<f64>(count, length);
        let [a, t, mask] = [0, 1, 2].map(|read| setting.reads[read].real().to_vec());
        let real = |values: &[f64]| -> Vec<f64> {
            let steps = values.chunks(length).zip(&mask);
            steps.filter(|(_, real)| **real != 0.0).flat_map(|(step, _)| step.to_vec()).collect()
        };
        let found = setting.result(&Measure { what: Measured::Target, of_steps: Some(length) });
        assert_close(&found, &plain(&real(&a), &real(&t)), 1e-10);
        let alone = Setting::new(1, &[&a, &mask], &[5]);
        let norm = alone.result(&Measure { what: Measured::Norm, of_steps: Some(length) });
        assert_close(&norm, &[found[0], 0.0, 0.0, 0.0, found[4]], 1e-10);
    }
}

const MEMORY: MeasureMemory = MeasureMemory { layers: 2, inner: 0, norms: 3 };

#[test]
fn what_is_kept_comes_first_and_nothing_overlaps() {
    let mut seen = vec![0; MEMORY.len()];
    (0..MeasureMemory::HEADER).for_each(|i| seen[i] += 1);
    for layer in 0..2 {
        for figure in 0..8 {
            seen[MEMORY.figure(layer, LayerFigure::Gap) + figure] += 1;
        }
        for entry in [Entry::Layer(layer), Entry::Cell(layer), Entry::Reconstruction(layer)] {
            (0..5).for_each(|i| seen[MEMORY.entry(entry) + i] += 1);
        }
    }
    for norm in 0..3 {
        (0..5).for_each(|i| seen[MEMORY.entry(Entry::Norm(norm)) + i] += 1);
    }
    assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
    assert_eq!(MEMORY.kept(), MEMORY.figure(2, LayerFigure::Gap));
}

fn judge(budget: LinkBudget, explosion: Option<ExplosionRule>) -> Judge {
    Judge {
        memory: MEMORY,
        norms: [[0, 1], [1, 2]].map(|pair| pair.map(|norm| MEMORY.entry(Entry::Norm(norm)))).to_vec(),
        metric: GapMetric::Rms,
        budget,
        budget_scale: 1.0,
        explosion,
        has_norm: false,
        entries: Vec::new(),
    }
}

/// A memory whose layers are this far from their targets.
fn memory(gaps: [f64; 2]) -> Vec<f64> {
    let mut memory = vec![0.0; MEMORY.len()];
    memory[MeasureMemory::header(Header::RateFactor)] = 1.0;
    set_gaps(&mut memory, gaps);
    for (norm, square) in [(0, 4.0), (1, 9.0), (2, 1.0)] {
        memory[MEMORY.entry(Entry::Norm(norm))] = square;
    }
    memory
}

fn set_gaps(memory: &mut [f64], gaps: [f64; 2]) {
    for (layer, gap) in gaps.into_iter().enumerate() {
        let first = MEMORY.entry(Entry::Layer(layer));
        memory[first..first + 5].copy_from_slice(&[4.0, -1.0, 1.0, gap * gap * 10.0, 10.0]);
    }
}

fn after(op: &Judge, memory: &[f64], losses: &[f64]) -> Vec<f64> {
    let mut setting = Setting::new(losses.len(), &[losses], &[]);
    setting.writes = vec![Data::Real(memory.to_vec())];
    setting.result(op)
}

fn header(memory: &[f64], what: Header) -> f64 {
    memory[MeasureMemory::header(what)]
}

#[test]
fn figures_are_those_of_the_formula() {
    let found = after(&judge(LinkBudget::Gain, None), &memory([0.5, 0.25]), &[1.0]);
    let figure = |layer, what| found[MEMORY.figure(layer, what)];
    assert_close(&[figure(0, LayerFigure::Gap), figure(1, LayerFigure::Gap)], &[0.5, 0.25], 1e-15);
    // The cosine is -1 / (2 * 1).
    assert_eq!(figure(0, LayerFigure::Alignment), 0.25);
    assert_eq!([figure(0, LayerFigure::Gain), figure(1, LayerFigure::Gain)], [1.5, 1.0 / 3.0]);
    assert_eq!(figure(0, LayerFigure::LinkBudget), 1.5);
    assert_eq!(figure(0, LayerFigure::Gate), 1.0);
    assert!(figure(0, LayerFigure::CellGap).is_nan() && figure(1, LayerFigure::Reconstruction).is_nan());
    assert_eq!(header(&found, Header::MeanGap), 0.375);
    let gated = after(&judge(LinkBudget::Alignment, None), &memory([0.5, 0.25]), &[1.0]);
    assert_eq!(gated[MEMORY.figure(0, LayerFigure::Gate)], 0.625);
    let weak = Judge { budget_scale: 0.5, ..judge(LinkBudget::Alignment, None) };
    assert_eq!(after(&weak, &memory([0.5, 0.25]), &[1.0])[MEMORY.figure(0, LayerFigure::Gate)], -1.0);
}

#[test]
fn a_jump_is_taken_back_once_and_then_is_the_datas() {
    let op = judge(LinkBudget::Gain, Some(ExplosionRule::default()));
    let calm = after(&op, &memory([0.5, 0.5]), &[1.0]);
    assert_eq!(header(&calm, Header::Action), Action::Apply.code());
    let mut jumped = calm.clone();
    set_gaps(&mut jumped, [6.0, 6.0]);
    let exploded = after(&op, &jumped, &[1.0]);
    assert_eq!(header(&exploded, Header::Action), Action::RollBack.code());
    assert_eq!(header(&exploded, Header::Explosions), 1.0);
    assert_eq!(header(&exploded, Header::RateFactor), 0.5);
    assert_close(
        &[header(&exploded, Header::PreviousGap), header(&exploded, Header::Growth)],
        &[0.5, 12.0],
        1e-14,
    );
    let again = after(&op, &exploded, &[1.0]);
    assert_eq!(header(&again, Header::Action), Action::Apply.code());
    assert_eq!(header(&again, Header::RateFactor), 0.5 * 1.05);
    // Below the threshold nothing is looked at.
    let mut small = calm.clone();
    small[MeasureMemory::header(Header::PreviousGap)] = 1e-6;
    set_gaps(&mut small, [0.05, 0.05]);
    assert_eq!(header(&after(&op, &small, &[1.0]), Header::Action), Action::Apply.code());
}

#[test]
fn what_is_not_finite_is_an_explosion() {
    let op = judge(LinkBudget::Gain, Some(ExplosionRule::default()));
    let nothing_yet = after(&op, &memory([f64::NAN, 1.0]), &[1.0]);
    assert_eq!(header(&nothing_yet, Header::Action), Action::Hold.code());
    let calm = after(&op, &memory([0.5, 0.5]), &[1.0]);
    for (gaps, loss) in [([f64::NAN, 1.0], 1.0), ([f64::INFINITY, 1.0], 1.0), ([0.5, 0.5], f64::NAN)] {
        let mut bad = calm.clone();
        set_gaps(&mut bad, gaps);
        let found = after(&op, &bad, &[1.0, loss]);
        assert_eq!(header(&found, Header::Action), Action::RollBack.code());
        assert_eq!(header(&found, Header::PreviousGap), 0.5);
    }
    let undisturbed = after(&judge(LinkBudget::Gain, None), &memory([f64::NAN, 1.0]), &[1.0]);
    assert_eq!(header(&undisturbed, Header::Action), Action::Apply.code());
}

#[cfg(feature = "gpu")]
mod on_gpu {
    use super::*;
    use crate::gpu::testing::check;

    #[test]
    fn sums_of_any_length() {
        for len in [1, 2, 63, 4099, 70_001] {
            let (a, other): (Vec<f32>, Vec<f32>) = (numbers(1, len), numbers(2, len));
            let mut setting = Setting::new(1, &[&a, &other], &[5]);
            (setting.values.batch_rows, setting.values.loss_scale) = (8, 64.0);
            check(Measure::of(Measured::Target), &setting);
            check(Measure::of(Measured::Gradient(Term::fixed(-0.1).times_rows().over_scale(true))), &setting);
            check(Measure::of(Measured::Norm), &Setting::new(1, &[&a], &[5]));
        }
    }

    #[test]
    fn sums_of_steps_that_count() {
        for (count, length) in [(1, 1), (2, 7), (4099, 3), (70, 1001)] {
            let setting = steps::<f32>(count, length);
            check(Measure { what: Measured::Target, of_steps: Some(length) }, &setting);
            let term = Term::fixed(-0.1).times_rows();
            check(Measure { what: Measured::Gradient(term), of_steps: Some(length) }, &setting);
        }
    }

    #[test]
    fn sums_are_collected() {
        let entries = vec![Entry::Layer(1), Entry::Norm(2), Entry::Cell(0)];
        let mut setting = Setting::<f32>::new(4, &[&[1.0, 2.0, 3.0, 4.0, 12.0], &[5.0; 5], &[6.0; 5]], &[]);
        setting.writes = vec![Data::Real(numbers(3, MEMORY.len()))];
        for accumulate in [false, true] {
            setting.accumulate = accumulate;
            check(Collect { memory: MEMORY, entries: entries.clone() }, &setting);
        }
    }

    #[test]
    fn sums_may_come_with_the_judgement() {
        let entries = vec![Entry::Layer(1), Entry::Norm(2)];
        let op =
            Judge { entries: entries.clone(), ..judge(LinkBudget::Gain, Some(ExplosionRule::default())) };
        let mut setting = Setting::<f32>::new(4, &[&[0.5; 4], &[1.0, 0.5, 3.0, 4.0, 12.0], &[5.0; 5]], &[]);
        let before: Vec<f32> = memory([0.5, 0.5]).into_iter().map(|x| x as f32 + 0.25).collect();
        setting.writes = vec![Data::Real(before.clone())];
        check(op.clone(), &setting);
        // As though they had been collected before.
        let mut apart = Setting::<f32>::new(4, &[&[1.0, 0.5, 3.0, 4.0, 12.0], &[5.0; 5]], &[]);
        apart.writes = vec![Data::Real(before)];
        let collected = apart.result(&Collect { memory: MEMORY, entries });
        let mut then = Setting::<f32>::new(4, &[&[0.5; 4]], &[]);
        then.writes = vec![Data::Real(collected)];
        let alone = Judge { entries: Vec::new(), ..op.clone() };
        assert_eq!(setting.result(&op)[..32], then.result(&alone)[..32]);
    }

    #[test]
    fn steps_are_judged() {
        let rule = Some(ExplosionRule::default());
        for (op, gaps) in [
            (judge(LinkBudget::Gain, rule), [0.5, 0.2]),
            (judge(LinkBudget::Gain, rule), [50.0, 20.0]),
            (judge(LinkBudget::Alignment, rule), [f64::INFINITY, 0.2]),
            (Judge { norms: Vec::new(), ..judge(LinkBudget::Gain, rule) }, [0.5, 0.2]),
            (Judge { metric: GapMetric::Mse, ..judge(LinkBudget::Alignment, None) }, [50.0, 0.2]),
        ] {
            let mut before = after(&judge(LinkBudget::Gain, rule), &memory([0.3, 0.3]), &[1.0]);
            set_gaps(&mut before, gaps);
            // What was not measured is not a number on either device, which no comparison likes.
            for layer in 0..2 {
                for entry in [Entry::Cell(layer), Entry::Reconstruction(layer)] {
                    let first = MEMORY.entry(entry);
                    before[first..first + 5].copy_from_slice(&[0.0, 0.0, 0.0, 1.0, 2.0]);
                }
            }
            let single: Vec<f32> = before.iter().map(|x| if x.is_nan() { 0.0 } else { *x as f32 }).collect();
            for loss in [1.0, f32::NAN] {
                let mut setting = Setting::<f32>::new(2, &[&[0.5, loss]], &[]);
                setting.writes = vec![Data::Real(single.clone())];
                check(op.clone(), &setting);
            }
        }
    }
}
