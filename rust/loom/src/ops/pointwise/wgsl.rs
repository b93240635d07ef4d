//! Formulas as WGSL text.

use super::{Activation, Arithmetic, Function, FunctionVisitor};
use crate::shader::add_line;
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Functions that the rendered text calls and WGSL lacks, or whose built-in
/// form overflows on some drivers. To stand once in a module.
pub const PRELUDE: &str = "\
fn loom_exp_m1(x: f32) -> f32 {
    let series = x + x * x * (0.5 + x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * (0.0013888889 + x * 0.0001984127)))));
    return select(exp(x) - 1.0, series, abs(x) < 0.4);
}

fn loom_ln_1p(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let q = s * s;
    let series = 1.0 + q * (0.33333334 + q * (0.2 + q * (0.14285715 + q * (0.11111111 + q * (0.09090909 + q * 0.07692308)))));
    return select(log(1.0 + x), 2.0 * s * series, x <= 1.0);
}

// min() and max() drop a NaN, and so does what drivers make of comparisons: only bits show it.
fn loom_at_most(x: f32, limit: f32) -> f32 {
    return select(min(x, limit), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

fn loom_at_least(x: f32, limit: f32) -> f32 {
    return select(max(x, limit), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

fn loom_tanh(x: f32) -> f32 {
    let e = loom_exp_m1(2.0 * loom_at_most(abs(x), 10.0));
    return sign(x) * (e / (e + 2.0));
}

fn loom_sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}

fn loom_erf(x: f32) -> f32 {
    let t = loom_at_most(abs(x), 4.0);
    let s = t * t;
    let near = t + t * (0.12837917 + s * (-0.37612534 + s * (0.11281992 + s * (-0.026768135 + s * (0.0049911942 + s * -0.000596761703)))));
    let far = t * (-0.12871751 + t * (-0.6348467 + t * (-0.10677788 + t * (0.024254622 + t * (-0.0038839644 + t * (0.0003831971 + t * -0.000017285347)))))) - t;
    return sign(x) * select(near, 1.0 - exp(far), t > 0.92773438);
}
";

impl Activation {
    /// A WGSL function of this name: the value from the input.
    ///
    /// It may call the functions of [`PRELUDE`].
    pub fn wgsl_value(self, name: &str) -> String {
        self.visit(Render { name, part: Part::Value })
    }

    /// A WGSL function of this name: the derivative from what
    /// [`Activation::saved`] says.
    ///
    /// It may call the functions of [`PRELUDE`].
    pub fn wgsl_derivative(self, name: &str) -> String {
        self.visit(Render { name, part: Part::Derivative })
    }
}

enum Part {
    Value,
    Derivative,
}

struct Render<'a> {
    name: &'a str,
    part: Part,
}

impl FunctionVisitor for Render<'_> {
    type Output = String;

    fn visit<F: Function>(self, function: F) -> String {
        self::function(self.name, ["x"], |[x]| match self.part {
            Part::Value => function.value(x),
            Part::Derivative => function.derivative(x),
        })
    }
}

/// A WGSL function of these arguments, which may call the functions of [`PRELUDE`].
pub(in crate::ops) fn function<const N: usize>(
    name: &str,
    arguments: [&'static str; N],
    result: impl for<'a> FnOnce([Expression<'a>; N]) -> Expression<'a>,
) -> String {
    let formula = Formula::default();
    let result = result(arguments.map(|name| formula.argument(name)));
    let (body, texts) = formula.render(&[result]);
    let arguments = arguments.map(|name| format!("{name}: f32")).join(", ");
    format!("fn {name}({arguments}) -> f32 {{\n{body}    return {};\n}}\n", texts[0])
}

/// The text after [`PRELUDE`], where it calls any of that.
pub(in crate::ops) fn with_prelude(text: String) -> String {
    if text.contains("loom_") { format!("{PRELUDE}\n{text}") } else { text }
}

/// One operation on earlier nodes, which are named by their index.
#[derive(Clone, Copy, PartialEq)]
enum Node {
    Argument(&'static str),
    Constant(f64),
    Negative(usize),
    Binary(char, usize, usize),
    Call(&'static str, usize),
    MulAdd(usize, usize, usize),
    SelectGreater { left: usize, right: usize, yes: usize, no: usize },
}

impl Node {
    /// The nodes it uses.
    fn operands(&self) -> impl Iterator<Item = usize> {
        let operands = match *self {
            Node::Argument(_) | Node::Constant(_) => [None; 4],
            Node::Negative(a) | Node::Call(_, a) => [Some(a), None, None, None],
            Node::Binary(_, a, b) => [Some(a), Some(b), None, None],
            Node::MulAdd(a, b, c) => [Some(a), Some(b), Some(c), None],
            Node::SelectGreater { left, right, yes, no } => [Some(left), Some(right), Some(yes), Some(no)],
        };
        operands.into_iter().flatten()
    }
}

/// The nodes of a formula, each different from all before it.
#[derive(Default)]
pub(in crate::ops) struct Formula {
    nodes: RefCell<Vec<Node>>,
}

impl Formula {
    /// The expression of this node, which is found again if it is there already.
    fn node(&self, node: Node) -> Expression<'_> {
        let mut nodes = self.nodes.borrow_mut();
        let index = nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        });
        Expression { formula: self, index }
    }

    /// An argument of this name.
    pub(in crate::ops) fn argument(&self, name: &'static str) -> Expression<'_> {
        self.node(Node::Argument(name))
    }

    /// The statements that the results need, since what is used more than once gets a name, and the
    /// results' texts.
    pub(in crate::ops) fn render(&self, results: &[Expression<'_>]) -> (String, Vec<String>) {
        let nodes = self.nodes.borrow();
        // Operands come before what uses them, so one pass backwards finds all that is needed.
        let mut uses = vec![0usize; nodes.len()];
        results.iter().for_each(|result| uses[result.index] += 1);
        for (index, node) in nodes.iter().enumerate().rev() {
            if uses[index] > 0 {
                node.operands().for_each(|operand| uses[operand] += 1);
            }
        }

        let mut body = String::new();
        let mut named = 0;
        let mut texts: Vec<String> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let mut text = text_of(node, &texts);
            let leaf = matches!(node, Node::Argument(_) | Node::Constant(_));
            if uses[index] > 1 && !leaf {
                add_line!(body, "    let v{named} = {};", unparenthesised(&text));
                text = format!("v{named}");
                named += 1;
            }
            texts.push(text);
        }
        let results =
            results.iter().map(|result| unparenthesised(&texts[result.index]).to_string()).collect();
        (body, results)
    }
}

/// The text of a node whose operands' texts are known.
fn text_of(node: &Node, texts: &[String]) -> String {
    match *node {
        Node::Argument(name) => name.to_string(),
        // The shortest text that reads back as the same f32 always has a point or an exponent. A constant
        // may not be infinite: the largest number stands for it.
        Node::Constant(value) => format!("{:?}", (value as f32).clamp(-f32::MAX, f32::MAX)),
        Node::Negative(a) => format!("(-{})", texts[a]),
        Node::Binary(symbol, a, b) => format!("({} {symbol} {})", texts[a], texts[b]),
        Node::MulAdd(a, b, c) => {
            let [a, b, c] = [a, b, c].map(|operand| unparenthesised(&texts[operand]));
            format!("fma({a}, {b}, {c})")
        }
        Node::Call(function, a) => format!("{function}({})", unparenthesised(&texts[a])),
        // The smaller or larger of two, of which the one that may be a NaN stays one.
        Node::SelectGreater { left, right, yes, no } if yes == left && no == right => {
            format!("loom_at_least({}, {})", unparenthesised(&texts[no]), texts[yes])
        }
        Node::SelectGreater { left, right, yes, no } if yes == right && no == left => {
            format!("loom_at_most({}, {})", unparenthesised(&texts[no]), texts[yes])
        }
        Node::SelectGreater { left, right, yes, no } => format!(
            "select({}, {}, {} > {})",
            unparenthesised(&texts[no]),
            unparenthesised(&texts[yes]),
            texts[left],
            texts[right]
        ),
    }
}

/// The text without the parentheses around the whole of it.
///
/// Only a text made by [`text_of`] starts with one that closes at its end.
fn unparenthesised(text: &str) -> &str {
    text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text)
}

/// Part of a formula that is to become text.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Expression<'a> {
    formula: &'a Formula,
    index: usize,
}

impl Expression<'_> {
    fn binary(self, symbol: char, other: Self) -> Self {
        self.formula.node(Node::Binary(symbol, self.index, other.index))
    }

    /// A call of a function that stands in the same module.
    pub(in crate::ops) fn call(self, function: &'static str) -> Self {
        self.formula.node(Node::Call(function, self.index))
    }
}

impl Add for Expression<'_> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.binary('+', other)
    }
}

impl Sub for Expression<'_> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.binary('-', other)
    }
}

impl Mul for Expression<'_> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        self.binary('*', other)
    }
}

impl Div for Expression<'_> {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        self.binary('/', other)
    }
}

impl Neg for Expression<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.formula.node(Node::Negative(self.index))
    }
}

impl Arithmetic for Expression<'_> {
    fn constant(self, value: f64) -> Self {
        self.formula.node(Node::Constant(value))
    }

    fn select_greater(self, than: Self, yes: Self, no: Self) -> Self {
        let node = Node::SelectGreater { left: self.index, right: than.index, yes: yes.index, no: no.index };
        self.formula.node(node)
    }

    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.formula.node(Node::MulAdd(self.index, factor.index, addend.index))
    }

    fn flush(self) -> Self {
        self.call("flush")
    }

    fn exp(self) -> Self {
        self.call("exp")
    }

    fn exp_m1(self) -> Self {
        self.call("loom_exp_m1")
    }

    fn ln_1p(self) -> Self {
        self.call("loom_ln_1p")
    }

    fn tanh(self) -> Self {
        self.call("loom_tanh")
    }

    fn sigmoid(self) -> Self {
        self.call("loom_sigmoid")
    }

    fn erf(self) -> Self {
        self.call("loom_erf")
    }

    fn sqrt(self) -> Self {
        self.call("sqrt")
    }

    fn abs(self) -> Self {
        self.call("abs")
    }
}
