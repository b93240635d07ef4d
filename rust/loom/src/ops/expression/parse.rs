//! Expressions as they are written, read with Python's precedences.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::graph::{Axes, Binary, Graph, Id, Mask, Unary};
use crate::error::nearest;
use crate::ops::pointwise::Activation;
use crate::{Error, Result};

/// The most characters an expression may have.
pub const MOST_CHARACTERS: usize = 2000;
/// How many levels of parentheses, signs and powers may be inside each other.
pub const MOST_LEVELS: usize = 60;

/// Functions of one argument beside the activations.
const UNARY: &[(&str, Unary)] = &[
    ("exp", Unary::Exp),
    ("expm1", Unary::ExpM1),
    ("log", Unary::Ln),
    ("log1p", Unary::Ln1p),
    ("sqrt", Unary::Sqrt),
    ("abs", Unary::Abs),
    ("sign", Unary::Sign),
    ("erf", Unary::Erf),
    ("sin", Unary::Sin),
    ("cos", Unary::Cos),
];
/// Functions of several arguments, and how many.
const SEVERAL: &[(&str, usize)] = &[("max", 2), ("min", 2), ("clip", 3), ("where", 3)];

/// Functions over axes.
const REDUCTIONS: &[&str] = &["sum", "mean"];
/// The most axes that those can name.
const MOST_AXES: usize = 16;

/// The names of all functions.
pub fn functions() -> Vec<&'static str> {
    let activations = Activation::ALL.iter().map(|activation| activation.name());
    activations
        .chain(UNARY.iter().map(|(name, _)| *name))
        .chain(SEVERAL.iter().map(|(name, _)| *name))
        .chain(REDUCTIONS.iter().copied())
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Symbol(&'static str),
    End,
}

/// Two characters before one of them.
const SYMBOLS: &[&str] = &["**", "<=", ">=", "==", "!=", "+", "-", "*", "/", "(", ")", ",", "<", ">", "="];

/// Reads an expression of these names into a graph, whose inputs are numbered as the names are.
///
/// # Errors
/// [`Error::Value`], which points at the place.
pub(super) fn parse(text: &str, names: &[&str], graph: &mut Graph) -> Result<Id> {
    if text.chars().count() > MOST_CHARACTERS {
        let count = text.chars().count();
        return Err(Error::Value(format!(
            "an expression has at most {MOST_CHARACTERS} characters, got {count}"
        )));
    }
    let mut parser = Parser { text, names, graph, at: 0, token: Token::End, start: 0, levels: 0 };
    parser.advance()?;
    let root = parser.comparison()?;
    match parser.token {
        Token::End => Ok(root),
        _ => Err(parser.error(parser.start..parser.at, "an operator or the end was expected here")),
    }
}

struct Parser<'a, 'g> {
    text: &'a str,
    names: &'a [&'a str],
    graph: &'g mut Graph,
    /// Where the token ends.
    at: usize,
    token: Token<'a>,
    /// Where the token starts.
    start: usize,
    levels: usize,
}

impl<'a> Parser<'a, '_> {
    /// An error, with the line it is in and carets below the place.
    fn error(&self, place: std::ops::Range<usize>, what: &str) -> Error {
        let (before, from) = self.text.split_at_checked(place.start).unwrap_or((self.text, ""));
        let before = before.rsplit('\n').next().unwrap_or_default();
        let behind = from.lines().next().unwrap_or_default();
        let count = self.text.get(place).and_then(|text| text.lines().next()).unwrap_or_default();
        let (spaces, carets) = (before.chars().count(), count.chars().count().max(1));
        Error::Value(format!(
            "{what}\n    {before}{behind}\n    {}{}",
            " ".repeat(spaces),
            "^".repeat(carets)
        ))
    }

    fn advance(&mut self) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default().trim_start();
        self.start = self.text.len().saturating_sub(rest.len());
        let (token, len) = if rest.is_empty() {
            (Token::End, 0)
        } else if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            self.number(rest)?
        } else if rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Token::Name(rest.get(..len).unwrap_or(rest)), len)
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            (Token::Symbol(symbol), symbol.len())
        } else {
            let len = rest.chars().next().map_or(0, char::len_utf8);
            let found = rest.get(..len).unwrap_or(rest).escape_debug();
            let hint = if rest.starts_with('^') { "; a power is written **" } else { "" };
            let what = format!("\"{found}\" is nothing that expressions have{hint}");
            return Err(self.error(self.place(len), &what));
        };
        (self.token, self.at) = (token, self.place(len).end);
        Ok(())
    }

    /// So many bytes from where the token starts.
    fn place(&self, len: usize) -> std::ops::Range<usize> {
        self.start..self.start.saturating_add(len)
    }

    fn number(&self, rest: &'a str) -> Result<(Token<'a>, usize)> {
        let behind_digits = |text: &'a str| text.trim_start_matches(|c: char| c.is_ascii_digit());
        let mut behind = behind_digits(rest);
        if let Some(fraction) = behind.strip_prefix('.') {
            behind = behind_digits(fraction);
        }
        if let Some(exponent) = behind.strip_prefix(['e', 'E']) {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            // Without digits it is a name that follows.
            if exponent.starts_with(|c: char| c.is_ascii_digit()) {
                behind = behind_digits(exponent);
            }
        }
        let len = rest.len().saturating_sub(behind.len());
        match rest.get(..len).unwrap_or_default().parse::<f64>() {
            Ok(value) if (value as f32).is_finite() => Ok((Token::Number(value), len)),
            Ok(_) => Err(self.error(self.place(len), "a number must fit 32 bits")),
            Err(_) => Err(self.error(self.place(len.max(1)), "this is no number")),
        }
    }

    fn takes(&mut self, symbol: &str) -> Result<bool> {
        let is = matches!(self.token, Token::Symbol(found) if found == symbol);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn expect(&mut self, symbol: &str, what: &str) -> Result<()> {
        if self.takes(symbol)? { Ok(()) } else { Err(self.error(self.start..self.at, what)) }
    }

    /// What `inner` reads, a level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.levels == MOST_LEVELS {
            let what = format!("more than {MOST_LEVELS} levels are inside each other");
            return Err(self.error(self.start..self.at, &what));
        }
        let outside = self.levels;
        self.levels = outside.saturating_add(1);
        let result = inner(self)?;
        self.levels = outside;
        Ok(result)
    }

    fn comparison(&mut self) -> Result<Id> {
        let left = self.sum()?;
        let Token::Symbol(symbol @ ("<" | "<=" | ">" | ">=" | "==" | "!=")) = self.token else {
            return Ok(left);
        };
        self.advance()?;
        let right = self.sum()?;
        if let Token::Symbol("<" | "<=" | ">" | ">=" | "==" | "!=") = self.token {
            let what = "comparisons do not follow each other; multiply two of them for both";
            return Err(self.error(self.start..self.at, what));
        }
        let (function, a, b) = match symbol {
            "<" => (Binary::Greater, right, left),
            "<=" => (Binary::GreaterEqual, right, left),
            ">" => (Binary::Greater, left, right),
            ">=" => (Binary::GreaterEqual, left, right),
            "==" => (Binary::Equal, left, right),
            _ => (Binary::NotEqual, left, right),
        };
        Ok(self.graph.binary(function, a, b))
    }

    fn sum(&mut self) -> Result<Id> {
        let mut left = self.product()?;
        while let Token::Symbol(symbol @ ("+" | "-")) = self.token {
            self.advance()?;
            let right = self.product()?;
            let function = if symbol == "+" { Binary::Add } else { Binary::Subtract };
            left = self.graph.binary(function, left, right);
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Id> {
        let mut left = self.signed()?;
        while let Token::Symbol(symbol @ ("*" | "/")) = self.token {
            self.advance()?;
            let right = self.signed()?;
            let function = if symbol == "*" { Binary::Multiply } else { Binary::Divide };
            left = self.graph.binary(function, left, right);
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Id> {
        match self.token {
            Token::Symbol(sign @ ("-" | "+")) => {
                self.advance()?;
                let operand = self.deeper(Self::signed)?;
                Ok(if sign == "-" { self.graph.unary(Unary::Negative, operand) } else { operand })
            }
            _ => self.power(),
        }
    }

    fn power(&mut self) -> Result<Id> {
        let base = self.atom()?;
        if !self.takes("**")? {
            return Ok(base);
        }
        let exponent = self.deeper(Self::signed)?;
        Ok(self.graph.binary(Binary::Power, base, exponent))
    }

    fn atom(&mut self) -> Result<Id> {
        let (start, end) = (self.start, self.at);
        match self.token {
            Token::Number(value) => {
                self.advance()?;
                Ok(self.graph.constant(value))
            }
            Token::Name(name) => {
                self.advance()?;
                if self.token == Token::Symbol("(") {
                    return self.call(name, start, end);
                }
                if let Some(number) = self.names.iter().position(|known| *known == name) {
                    return Ok(self.graph.input(number));
                }
                if name == "pi" {
                    return Ok(self.graph.constant(std::f64::consts::PI));
                }
                if functions().contains(&name) {
                    let what = format!("{name} is a function; write {name}(...)");
                    return Err(self.error(start..end, &what));
                }
                Err(self.unknown("name", name, self.names.to_vec(), start..end))
            }
            Token::Symbol("(") => {
                self.advance()?;
                let inner = self.deeper(Self::comparison)?;
                self.expect(")", "a closing parenthesis was expected here")?;
                Ok(inner)
            }
            Token::End => Err(self.error(start..end, "the expression ends where a value was expected")),
            Token::Symbol(_) => {
                Err(self.error(start..end, "a number, a name or a parenthesis was expected here"))
            }
        }
    }

    fn unknown(&self, what: &str, name: &str, known: Vec<&str>, place: std::ops::Range<usize>) -> Error {
        let hint = nearest(name, known.iter().copied())
            .map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        let what = format!("unknown {what} \"{name}\"{hint} (known: {})", known.join(", "));
        self.error(place, &what)
    }

    /// A sum or mean: `sum(x)` over all axes, `sum(x, -1)`, `sum(x, 0, 1)`, `sum(x, axis=-1)`, `sum(x, axis=(0, 1))`.
    fn reduction(&mut self, name: &'a str, start: usize, end: usize) -> Result<Id> {
        self.advance()?;
        if self.takes(")")? {
            return Err(self.error(start..end, &format!("{name} takes what to add up, and axes")));
        }
        let of = self.deeper(Self::comparison)?;
        let (mut axes, mut named) = (Axes::default(), false);
        while self.takes(",")? {
            if self.token == Token::Name("axis") && !named {
                self.advance()?;
                self.expect("=", "axis is written axis=-1, or axis=(0, 1)")?;
                named = true;
            }
            if self.takes("(")? {
                loop {
                    self.axis(&mut axes)?;
                    if !self.takes(",")? {
                        break;
                    }
                }
                self.expect(")", "a comma or a closing parenthesis was expected here")?;
            } else {
                self.axis(&mut axes)?;
            }
        }
        self.expect(")", "a comma or a closing parenthesis was expected here")?;
        Ok(self.graph.reduce(name == "mean", axes, of))
    }

    /// Adds an axis: a whole number, from the first axis on, or below 0 from the last one back.
    fn axis(&mut self, axes: &mut Axes) -> Result<()> {
        let start = self.start;
        let negative = self.takes("-")?;
        let place = start..self.at;
        let number = match self.token {
            Token::Number(number) if number.fract() == 0.0 => number as usize,
            _ => {
                let what =
                    "an axis was expected here, a whole number without the batch, or below 0 from the last";
                return Err(self.error(place, what));
            }
        };
        let from_end = if negative { number.checked_sub(1) } else { Some(number) };
        let within = from_end.filter(|number| *number < MOST_AXES);
        let Some(bit) = within.and_then(|number| Mask::checked_shl(1, number as u32)) else {
            return Err(self.error(place, &format!("an axis is at least -{MOST_AXES} and below {MOST_AXES}")));
        };
        let mask = if negative { &mut axes.back } else { &mut axes.front };
        if *mask & bit != 0 {
            return Err(self.error(place, "an axis stands here twice"));
        }
        *mask |= bit;
        self.advance()
    }

    fn call(&mut self, name: &'a str, start: usize, end: usize) -> Result<Id> {
        if REDUCTIONS.contains(&name) {
            return self.reduction(name, start, end);
        }
        self.advance()?;
        let mut arguments = Vec::new();
        while !self.takes(")")? {
            if !arguments.is_empty() {
                self.expect(",", "a comma or a closing parenthesis was expected here")?;
            }
            let argument = self.deeper(Self::comparison)?;
            arguments.push(argument);
        }
        let several = SEVERAL.iter().find(|(known, _)| *known == name);
        let takes = |parser: &Self, count: usize, most: usize| {
            if (count..=most).contains(&arguments.len()) {
                return Ok(());
            }
            let many = if count == most { count.to_string() } else { format!("{count} to {most}") };
            let s = if most == 1 { "" } else { "s" };
            let what = format!("{name} takes {many} argument{s}, got {}", arguments.len());
            Err(parser.error(start..end, &what))
        };
        let meaningless = || Error::Internal(format!("{name} has no meaning"));
        if let Some((_, function)) = UNARY.iter().find(|(known, _)| *known == name) {
            takes(self, 1, 1)?;
            let argument = arguments.first().ok_or_else(meaningless)?;
            return Ok(self.graph.unary(*function, *argument));
        }
        if let Some((_, count)) = several {
            takes(self, *count, *count)?;
            let graph = &mut *self.graph;
            return Ok(match (name, &arguments[..]) {
                ("max", [a, b]) => graph.binary(Binary::Maximum, *a, *b),
                ("min", [a, b]) => graph.binary(Binary::Minimum, *a, *b),
                ("clip", [a, low, high]) => {
                    let raised = graph.binary(Binary::Maximum, *a, *low);
                    graph.binary(Binary::Minimum, raised, *high)
                }
                (_, [condition, yes, no]) => graph.select(*condition, *yes, *no),
                _ => return Err(meaningless()),
            });
        }
        let Some(activation) = Activation::ALL.iter().find(|activation| activation.name() == name) else {
            return Err(self.unknown("function", name, functions(), start..end));
        };
        let settings = activation.parameters();
        takes(self, 1, settings.len().saturating_add(1))?;
        let (argument, values) = arguments.split_first().ok_or_else(meaningless)?;
        let mut given = Vec::new();
        for ((setting, _), value) in settings.iter().zip(values) {
            let Some(value) = self.graph.number(*value) else {
                let what = format!("{name}'s {setting} must be a number");
                return Err(self.error(start..end, &what));
            };
            given.push((*setting, value));
        }
        let activation = Activation::with_parameters(name, given)
            .map_err(|error| self.error(start..end, &error.to_string()))?;
        Ok(self.graph.apply(activation, *argument))
    }
}
