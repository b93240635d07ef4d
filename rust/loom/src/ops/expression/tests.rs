//! Random expressions: derivatives against central differences, and the same bits on every instruction set.

use super::*;
use crate::ops::testing::{Setting, numbers};
use proptest::prelude::*;

/// Numbers that follow from a seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % count as u64) as usize
    }
}

/// An expression of x and a whose values stay ordinary.
fn random(choices: &mut Choices, depth: usize) -> String {
    if depth == 0 {
        return ["x", "a", "0.5", "x", "1.25", "a"][choices.below(6)].into();
    }
    let mut part = || random(choices, depth - 1);
    let (p, q) = (part(), part());
    const SMOOTH: [&str; 9] = ["tanh", "sigmoid", "sin", "cos", "gelu", "softplus", "mish", "silu", "erf"];
    const CORNERED: [&str; 5] = ["relu", "abs", "hardswish", "elu", "sign"];
    match choices.below(20) {
        0 => format!("{p} + {q}"),
        1 => format!("({p}) - ({q})"),
        2 | 3 => format!("({p}) * tanh({q})"),
        4 => format!("({p}) / (1 + ({q}) ** 2)"),
        5 => format!("exp(-({p}) ** 2) - ({q})"),
        6 => format!("sqrt(1 + ({p}) * ({p})) + {q}"),
        7 => format!("log1p(({p}) ** 2) * sigmoid({q})"),
        8 => format!("max({p}, {q})"),
        9 => format!("min({p}, {q}) - clip({p}, -0.5, 0.75)"),
        10 => format!("where({p} > {q}, tanh({p}), ({q}) / 2)"),
        11 => format!("(1 + ({p}) ** 2) ** 0.3 - ({q})"),
        12 => format!("(1 + abs({p})) ** tanh({q})"),
        13 => format!("expm1(tanh({p})) + log(1.5 + sin({q}))"),
        14 => format!("-tanh({p}) ** 3 + ({q}) * ({q} <= 1)"),
        15 => format!("(0.5 + ({p}) ** 2) ** -1.5 * cos({q})"),
        16 => format!("{}({p}) * 0.5 + ({q})", CORNERED[choices.below(5)]),
        _ => format!("{}({p}) - {}({q})", SMOOTH[choices.below(9)], SMOOTH[choices.below(9)]),
    }
}

/// Runs a program on x of (rows, columns) and a of (columns,), with the value and its gradient where they are read.
fn setting<T: crate::simd::Real>(
    expression: &Expression,
    wanted: Option<&[usize]>,
    [x, a, y, dy]: [&[T]; 4],
) -> (Evaluate, Setting<T>) {
    let shaped = shaped(expression, x.len() / a.len(), a.len());
    let plan = match wanted {
        None => shaped.value().expect("a plan"),
        Some(wanted) => shaped.gradients(wanted).expect("a plan").0,
    };
    let [Stage::Evaluate(op, reads, writes, _)] = &plan.stages[..] else { panic!("one stage, got {plan:?}") };
    let reads: Vec<&[T]> = reads.iter().map(|number| [x, a, y, dy][*number]).collect();
    (op.clone(), Setting::new(1, &reads, &vec![x.len(); writes.len()]))
}

/// The expression of x and a over rows of x, with a number of a for each column.
fn shaped(expression: &Expression, rows: usize, columns: usize) -> Shaped {
    let operands = vec![Operand::Rows, Operand::Shared(vec![columns])];
    expression.shaped("random", &[rows, columns], operands).expect("extents that fit")
}

const COLUMNS: usize = 37;

/// Derivatives of one random expression against central differences; and the same bits everywhere, by `run`.
fn check(seed: u64, rows: usize) {
    let mut choices = Choices(seed);
    let text = format!("{} + 0 * x * a", random(&mut choices, 3));
    let expression = Expression::parse(&text, &["x", "a"]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let len = rows * COLUMNS;
    let (x, a, dy) =
        (numbers::<f64>(seed, len), numbers::<f64>(seed + 1, COLUMNS), numbers::<f64>(seed + 2, len));
    let value = |x: &[f64], a: &[f64]| {
        let (op, setting) = setting(&expression, None, [x, a, &[], &[]]);
        setting.run_on(&op, &crate::ops::testing::cpus()[0]).expect("it runs")[0].real().to_vec()
    };
    let y = value(&x, &a);
    assert!(y.iter().all(|y| y.is_finite()), "{text}");
    let (op, setting64) = setting(&expression, Some(&[0, 1]), [&x, &a, &y, &dy]);
    let found = setting64.run(&op);
    let wide: Vec<f64> = (0..len).map(|i| a[i % COLUMNS]).collect();
    for (operand, found) in found.iter().enumerate() {
        // By element, as none meets another. Where two steps disagree there is a corner in between.
        let differences = |step: f64| -> Vec<f64> {
            let moved = |by: f64| {
                let mut operands = [x.clone(), wide.clone()];
                operands[operand].iter_mut().for_each(|number| *number += by);
                let [x, a] = operands;
                value(&x, &a)
            };
            moved(step)
                .iter()
                .zip(moved(-step))
                .map(|(above, below)| (above - below) / (2.0 * step))
                .collect()
        };
        let (fine, coarse) = (differences(1e-6), differences(3e-5));
        for i in 0..len {
            // An element that lies on a corner has one-sided differences.
            let cornered =
                (fine[i] - coarse[i]).abs() > 1e-5 * (1.0 + fine[i].abs()) || x[i] == 0.0 || wide[i] == 0.0;
            let (found, expected) = (found.real()[i], dy[i] * fine[i]);
            assert!(
                cornered || (found - expected).abs() <= 1e-6 * (1.0 + expected.abs()),
                "seed {seed}: {text} at x = {}, a = {}: gradient {operand} is {found}, differences {expected}",
                x[i],
                wide[i]
            );
        }
    }
    // In single precision, on every instruction set and number of threads, and near the value in double.
    let single = |numbers: &[f64]| -> Vec<f32> { numbers.iter().map(|number| *number as f32).collect() };
    let [x, a, y, dy] = [&x, &a, &y, &dy].map(|numbers| single(numbers));
    let (op, setting32) = setting(&expression, None, [&x, &a, &[], &[]]);
    let result = setting32.result(&op);
    let far = result.iter().zip(&y).filter(|(a, b)| (**a - **b).abs() > 1e-3 * (1.0 + b.abs())).count();
    // Comparisons of what is nearly equal may come out otherwise.
    assert!(far * 50 <= len, "{text}: {far} of {len} values far from double precision's");
    let (op, setting32) = setting(&expression, Some(&[0, 1]), [&x, &a, &y, &dy]);
    setting32.run(&op);
}

/// Two hundred of them; as many as `LOOM_EXPRESSIONS` says.
#[test]
fn derivatives_of_random_expressions_are_those_of_their_values() {
    let count = std::env::var("LOOM_EXPRESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    (0..count).for_each(|seed| check(seed, 1 + seed as usize % 3));
}

#[test]
fn long_operands_are_cut_into_tasks() {
    (1000..1003).for_each(|seed| check(seed, 500));
}

#[test]
#[cfg(feature = "gpu")]
fn a_gpu_computes_the_same() {
    for text in [
        "x * tanh(softplus(a * x))",
        "gelu(x) + leaky_relu(a, 0.2) ** 2 - elu(x, 0.5)",
        "where(x > a, sin(3 * x), cos(x - a)) + erf(x) - log1p(abs(x)) * expm1(a / 4)",
        "max(x, a) - min(x, 0.5) + clip(a, -0.3, 0.3) + sign(x) * sqrt(abs(a) + 1)",
        "(1 + x * x) ** 0.3 * (2 + abs(x)) ** a + log(1.5 + sin(40 * x)) + (x == 0) - (a != x) + (x <= a) * exp(-x)",
        "relu(x) * (1.5 + x ** 2) ** -2.5 - a",
    ] {
        let expression = Expression::parse(text, &["x", "a"]).expect("an expression");
        for rows in [1, 30] {
            let len = rows * COLUMNS;
            let (x, a, dy) = (numbers::<f32>(1, len), numbers::<f32>(2, COLUMNS), numbers::<f32>(3, len));
            let (op, value) = setting(&expression, None, [&x, &a, &[], &[]]);
            let y = value.result(&op);
            crate::gpu::testing::check(op, &value);
            let (op, gradients) = setting(&expression, Some(&[0, 1]), [&x, &a, &y, &dy]);
            crate::gpu::testing::check(op, &gradients);
        }
    }
}

fn refusal(text: &str) -> String {
    Expression::parse(text, &["x", "a"]).expect_err(text).to_string()
}

#[test]
fn errors_point_at_the_place() {
    assert_eq!(refusal("x * tnh(a)").lines().skip(1).collect::<Vec<_>>(), ["    x * tnh(a)", "        ^^^"]);
    for (text, what, carets) in [
        ("x * tnh(a)", "did you mean \"tanh\"?", "        ^^^"),
        ("x * tanh a", "tanh is a function; write tanh(...)", "        ^^^^"),
        ("x + b", "unknown name \"b\" (known: x, a)", "        ^"),
        ("x + (a", "a closing parenthesis was expected", "          ^"),
        ("x + ", "the expression ends where a value", "        ^"),
        ("x ^ 2", "a power is written **", "      ^"),
        ("x 2", "an operator or the end", "      ^"),
        ("0 < x < 1", "comparisons do not follow each other", "          ^"),
        ("max(x)", "max takes 2 arguments, got 1", "    ^^^"),
        ("relu(x, 2)", "relu takes 1 argument, got 2", "    ^^^^"),
        ("elu(x, a)", "elu's alpha must be a number", "    ^^^"),
        ("x + 1e999", "a number must fit 32 bits", "        ^^^^^"),
        ("x +\n  é * a", "unknown name \"é\"", "      ^"),
    ] {
        let message = refusal(text);
        assert!(message.contains(what), "{message}");
        assert_eq!(message.lines().last(), Some(carets), "{message}");
    }
    assert!(refusal("x + 1").contains("does not depend on a"));
    assert!(refusal(&"x+".repeat(2000)).contains("at most 2000 characters, got 4000"));
    for deep in [
        format!("{}x{}", "(".repeat(500), ")".repeat(500)),
        format!("{}x", "-".repeat(1500)),
        format!("x{}", "**x".repeat(600)),
    ] {
        assert!(refusal(&deep).contains("more than 60 levels"), "{}", refusal(&deep));
    }
}

#[test]
fn precedences_are_pythons() {
    let number = |text: &str| {
        let mut graph = Graph::default();
        let root = parse::parse(text, &[], &mut graph).expect(text);
        graph.number(root).expect("a number")
    };
    for (text, value) in [
        ("-2 ** 2", -4.0),
        ("2 ** -1", 0.5),
        ("2 ** 3 ** 2", 512.0),
        ("1 - 2 - 3", -4.0),
        ("12 / 2 * 3", 18.0),
        ("1 + 2 * 3 < 8", 1.0),
        ("where(1 >= 2, 5, .5)", 0.5),
        ("1.5e1 - +1e-1", 14.9),
    ] {
        assert_eq!(number(text), value, "{text}");
    }
}

#[test]
fn what_is_an_activation_is_known_for_one() {
    for (text, activation) in [
        ("x * sigmoid(x)", Activation::Silu),
        ("tanh(softplus(x)) * x", Activation::Mish),
        ("leaky_relu(x, 0.2)", Activation::LeakyRelu { slope: 0.2 }),
        ("x * 1 + 0", Activation::Linear),
    ] {
        assert_eq!(Expression::parse(text, &["x"]).expect(text).activation(), Some(activation), "{text}");
    }
}

#[test]
fn what_stands_twice_is_computed_once() {
    let expression =
        Expression::parse("exp(x) * a + exp(x) / (1 + exp(x))", &["x", "a"]).expect("an expression");
    let plan = shaped(&expression, 2, 3).value().expect("a plan");
    let [Stage::Evaluate(op, ..)] = &plan.stages[..] else { panic!("one stage") };
    assert_eq!(op.program.code.len(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the text: an error or an expression, whose code and gradients are made in no time.
    #[test]
    fn no_text_does_harm(pieces in proptest::collection::vec(prop_oneof![
        proptest::sample::select(vec!["x", "a", "(", ")", "+", "-", "**", "*", ",", "tanh(", "where(", "sum(", "mean(", ", -1", "axis=", "1.5", "<", "\n", "é", "e", "."])
            .prop_map(str::to_string),
        ".{0,3}",
    ], 0..60)) {
        let read = Expression::parse(&pieces.concat(), &["x"]);
        if let Ok(shaped) = read.and_then(|expression| expression.shaped("random", &[2, 3], vec![Operand::Rows])) {
            prop_assert!(!shaped.value().expect("a plan").stages.is_empty());
            shaped.gradients(&[0]).expect("a plan");
        }
    }
}
