//! WGSL text with its constants filled in.

use std::fmt::Display;

/// Appends a line to a text.
macro_rules! add_line {
    ($text:expr, $($format:tt)*) => {{
        $text.push_str(&format!($($format)*));
        $text.push('\n');
    }};
}
pub(crate) use add_line;

/// What every kernel may use; stands before its text.
const PRELUDE: &str = include_str!("prelude.wgsl");

/// A WGSL file whose open places are being filled in.
///
/// `constant` puts `const NAME: type = value;` before the text, `section` replaces `#{NAME}`.
#[derive(Clone, Debug)]
pub struct Template {
    constants: String,
    text: String,
    sections: Vec<(String, String)>,
}

impl Template {
    /// The text of a file.
    pub fn new(text: &str) -> Self {
        Self { constants: String::new(), text: text.to_string(), sections: Vec::new() }
    }

    /// Defines an unsigned constant.
    #[must_use]
    pub fn constant(mut self, name: &str, value: impl TryInto<u32>) -> Self {
        // Extents that do not fit 32 bits are refused before any kernel is made for them.
        let value = value.try_into().unwrap_or(u32::MAX);
        add_line!(self.constants, "const {name}: u32 = {value}u;");
        self
    }

    /// Defines a constant truth value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: bool) -> Self {
        add_line!(self.constants, "const {name}: bool = {value};");
        self
    }

    /// Defines a constant `f32`.
    #[must_use]
    pub fn float(mut self, name: &str, value: f64) -> Self {
        // A constant expression may not be infinite: the largest number stands for it. The shortest
        // text that reads back as the same number loses no digit.
        let value = (value as f32).clamp(-f32::MAX, f32::MAX);
        add_line!(self.constants, "const {name}: f32 = {value:e}f;");
        self
    }

    /// Replaces `#{name}` by this text, in which there may be other names.
    #[must_use]
    pub fn section(mut self, name: &str, text: impl Display) -> Self {
        self.sections.push((name.to_string(), text.to_string()));
        self
    }

    /// Adds to the text.
    #[must_use]
    pub fn append(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// The text so far, as a part of another.
    pub fn text(self) -> String {
        let (constants, text) = self.parts();
        constants + &text
    }

    /// The constants, and the text with its sections in place.
    pub(super) fn parts(self) -> (String, String) {
        let mut text = String::with_capacity(2 * self.text.len());
        self.fill(&self.text, &mut text);
        (self.constants, text)
    }

    /// A section that is named nowhere.
    pub(super) fn unused(&self) -> Option<&str> {
        let named = |name: &str| {
            let name = format!("#{{{name}}}");
            self.text.contains(&name) || self.sections.iter().any(|(_, text)| text.contains(&name))
        };
        self.sections.iter().map(|(name, _)| name.as_str()).find(|name| !named(name))
    }

    /// Appends `text` with its sections in place; what has none is left for others.
    fn fill(&self, text: &str, whole: &mut String) {
        let mut rest = text;
        while let Some(start) = rest.find("#{") {
            let Some(end) = rest[start..].find('}') else { break };
            let (before, after) = rest.split_at(start);
            let (name, after) = after.split_at(end + 1);
            whole.push_str(before);
            match self.sections.iter().find(|(known, _)| *known == name[2..end]) {
                Some((_, section)) => self.fill(section, whole),
                None => whole.push_str(name),
            }
            rest = after;
        }
        whole.push_str(rest);
    }
}

/// The complete text of a compute shader with one entry point, `main`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    label: String,
    source: String,
    /// Whether it is loom's own text, which needs no checks while it runs.
    trusted: bool,
    /// Whether its workgroups wait for each other, so that all of them have to run at once.
    stays: bool,
}

impl Kernel {
    /// A kernel of this text; `enable` directives in it are moved to the front.
    pub fn new(label: impl Into<String>, text: &str) -> Self {
        let is_directive = |line: &&str| line.starts_with("enable ");
        let source = if text.lines().any(|line| is_directive(&line)) {
            let (directives, others): (Vec<&str>, Vec<&str>) = text.lines().partition(is_directive);
            directives.join("\n") + "\n" + PRELUDE + &others.join("\n")
        } else {
            [PRELUDE, text].concat()
        };
        Self { label: label.into(), source, trusted: true, stays: false }
    }

    /// A kernel of text from elsewhere: its indices are checked while it runs.
    #[must_use]
    pub fn checked(self) -> Self {
        Self { trusted: false, ..self }
    }

    /// The same, of which this says whether its workgroups wait for each other.
    #[must_use]
    pub fn with_stays(self, stays: bool) -> Self {
        Self { stays, ..self }
    }

    /// Whether its workgroups wait for each other, so that all of them have to run at once.
    pub fn stays(&self) -> bool {
        self.stays
    }

    /// What it is, for error messages and debuggers.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The whole text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is loom's own text, which needs no checks while it runs.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// What every kernel begins with, and what follows.
    pub(super) fn split(&self) -> (&str, &str) {
        let end = self.source.find(PRELUDE).map_or(0, |start| start + PRELUDE.len());
        self.source.split_at(end)
    }

    /// A kernel called the same, of this whole text.
    pub(super) fn with_source(&self, source: String) -> Self {
        Self { source, ..self.clone() }
    }
}
