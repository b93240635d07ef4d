//! A kernel declared from names: its operands, its numbers, and how many threads run it.

use super::operand::Operand;
use super::recorder::{Bind, Recorder};
use super::template::{Kernel, Template, add_line};
use crate::{Error, Result};
use std::fmt::Display;

/// Threads of a workgroup, where a kernel does not say otherwise.
pub const THREADS: usize = 256;

/// A dispatch of a kernel whose operands and numbers are declared where their values are given, so that
/// text and values cannot come apart.
///
/// The text holds functions alone, and calls operands by their names, numbers `constants.name`, the threads
/// of a workgroup `THREADS`, and the number of the step `constants.step`. The parameters of `main` are what
/// a thread knows of itself:
///
/// ```wgsl
/// fn main(i: u32) {}                    // its number among all threads
/// fn main(group: u32, thread: u32) {}   // the number of its workgroup, and its own there
/// fn main(group: u32, thread: u32, subgroup: u32) {} // the same, and the number of its subgroup there
/// fn main(group: u32, subgroup: u32, lane: u32) {}   // of its workgroup, its subgroup there, its own in that one
/// fn main(thread: u32) {}               // its number in its workgroup
/// fn main() {}
/// ```
///
/// All but the last are of type `u32`; `thread` is always called so, the others as fits the kernel. A `main`
/// with an attribute of its own is left as it is.
///
/// What is wrong with a declaration is an error when it is dispatched.
#[derive(Clone, Debug)]
#[must_use]
pub struct Shader {
    label: String,
    template: Template,
    threads: usize,
    stays: bool,
    operands: Vec<DeclaredOperand>,
    numbers: Vec<DeclaredNumber>,
    /// Names that the text must use.
    names: Vec<String>,
    mistake: Option<String>,
}

/// An operand by its name and type.
#[derive(Clone, Debug)]
pub(super) struct DeclaredOperand {
    pub(super) name: String,
    pub(super) ty: String,
    pub(super) bind: Bind,
}

/// A number that the dispatch brings along, by its name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeclaredNumber {
    pub(super) name: String,
    pub(super) ty: &'static str,
    pub(super) bits: u32,
}

/// What a declaration is made of: its constants and its text with all sections in place.
pub(super) struct Declared {
    pub(super) text: String,
    pub(super) operands: Vec<DeclaredOperand>,
    pub(super) numbers: Vec<DeclaredNumber>,
}

impl Shader {
    /// A kernel of this text; the label is for error messages and debuggers.
    pub fn new(label: impl Into<String>, text: &str) -> Self {
        Self {
            label: label.into(),
            template: Template::new(text),
            threads: THREADS,
            stays: false,
            operands: Vec::new(),
            numbers: Vec::new(),
            names: Vec::new(),
            mistake: None,
        }
    }

    /// Adds this to the text: functions that reach what was declared, or `main`.
    pub fn append(self, text: &str) -> Self {
        Self { template: self.template.append(text), ..self }
    }

    /// Sets the threads of a workgroup.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Says that its workgroups wait for each other: all of them have to run at once, beside no others that wait.
    pub fn stays(self) -> Self {
        Self { stays: true, ..self }
    }

    /// An array of these elements that is read.
    pub fn read(self, name: &str, element: &str, operand: Operand) -> Self {
        self.bind(name, format_args!("array<{element}>"), Bind::Read(operand))
    }

    /// The step's operands by these names, in order: arrays of `f32`.
    ///
    /// # Errors
    /// As [`Recorder::read`].
    pub fn reads<'a>(
        mut self,
        recorder: &Recorder<'_>,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        for (number, name) in names.into_iter().enumerate() {
            self = self.read(name, "f32", recorder.read(number)?);
        }
        Ok(self)
    }

    /// An array of these elements that is written, and may be read.
    pub fn write(self, name: &str, element: &str, operand: Operand) -> Self {
        self.bind(name, format_args!("array<{element}>"), Bind::Write(operand))
    }

    /// The scales of a packed weight, as `scales`.
    pub fn scales(mut self, element: &str, weight: &Operand) -> Self {
        let Some(scales) = weight.scales() else {
            self.mistake.get_or_insert("its weight is without scales".into());
            return self;
        };
        self.read("scales", element, scales)
    }

    /// What the verdict on the step has set, as `control`.
    pub fn control(self, recorder: &Recorder<'_>) -> Self {
        self.bind("control", "Control", Bind::Read(recorder.control()))
    }

    /// An operand of any type.
    pub fn bind(mut self, name: &str, ty: impl Display, bind: Bind) -> Self {
        self.operands.push(DeclaredOperand { name: name.into(), ty: ty.to_string(), bind });
        self.names.push(name.into());
        self
    }

    /// An unsigned number that the dispatch brings along: the same text serves all its values.
    pub fn number(mut self, name: &str, value: impl TryInto<u32>) -> Self {
        let Ok(value) = value.try_into() else {
            let mistake = format!("its number \"{name}\" does not fit 32 bits");
            self.mistake.get_or_insert(mistake);
            return self;
        };
        self.field(name, "u32", value)
    }

    /// A real number that the dispatch brings along.
    pub fn real(self, name: &str, value: f64) -> Self {
        self.field(name, "f32", (value as f32).to_bits())
    }

    pub(super) fn field(mut self, name: &str, ty: &'static str, bits: u32) -> Self {
        self.numbers.push(DeclaredNumber { name: name.into(), ty, bits });
        self.names.push(format!("constants.{name}"));
        self
    }

    /// Defines an unsigned constant: each value makes another kernel.
    pub fn constant(self, name: &str, value: impl TryInto<u32>) -> Self {
        Self { template: self.template.constant(name, value), ..self }
    }

    /// Defines a constant truth value.
    pub fn flag(self, name: &str, value: bool) -> Self {
        Self { template: self.template.flag(name, value), ..self }
    }

    /// Defines a constant `f32`.
    pub fn float(self, name: &str, value: f64) -> Self {
        Self { template: self.template.float(name, value), ..self }
    }

    /// Replaces `#{name}` by this text.
    pub fn section(self, name: &str, text: impl Display) -> Self {
        Self { template: self.template.section(name, text), ..self }
    }

    /// What `add` makes of it, where this holds.
    pub fn when(self, holds: bool, add: impl FnOnce(Self) -> Self) -> Self {
        if holds { add(self) } else { self }
    }

    /// Lets the text leave out the names so far: it is one of several that are declared alike.
    pub fn unchecked(mut self) -> Self {
        self.names.clear();
        self
    }

    /// Runs it with a thread for each of so many elements; `main` takes its number.
    ///
    /// # Errors
    /// As [`groups`](Self::groups).
    pub fn elements(self, recorder: &mut Recorder<'_>, elements: usize) -> Result<()> {
        let groups = elements.div_ceil(self.threads);
        self.groups(recorder, groups)
    }

    /// Runs it on so many workgroups.
    ///
    /// # Errors
    /// [`Error::Internal`] for a mistake in the declaration, and as [`Recorder::dispatch`].
    pub fn groups(self, recorder: &mut Recorder<'_>, groups: usize) -> Result<()> {
        let (kernel, operands, numbers) = self.finish()?;
        recorder.dispatch(kernel, operands, numbers, groups)
    }

    /// Whether its workgroups wait for each other.
    pub(super) fn has_waiting(&self) -> bool {
        self.stays
    }

    /// The threads of a workgroup.
    pub(super) fn thread_count(&self) -> usize {
        self.threads
    }

    /// What it is made of.
    ///
    /// # Errors
    /// [`Error::Internal`] for a mistake in the declaration.
    pub(super) fn into_parts(self) -> Result<Declared> {
        let wrong = |what: String| Error::Internal(format!("kernel {}: {what}", self.label));
        if let Some(mistake) = self.mistake {
            return Err(wrong(mistake));
        }
        // What the tests of every kernel find nothing wrong with need not be looked through any more.
        let unused = cfg!(debug_assertions).then(|| self.template.unused().map(str::to_string)).flatten();
        let (constants, text) = self.template.parts();
        let unused = unused.or_else(|| {
            let is_unused = |name: &&String| cfg!(debug_assertions) && !mentions(&text, name);
            self.names.iter().find(is_unused).cloned()
        });
        if let Some(name) = unused {
            return Err(wrong(format!("its text does not use \"{name}\"")));
        }
        if let Some((_, open)) = text.split_once("#{") {
            return Err(wrong(format!(
                "nothing was said for #{{{}",
                open.lines().next().unwrap_or_default()
            )));
        }
        Ok(Declared { text: constants + &text, operands: self.operands, numbers: self.numbers })
    }

    /// The kernel, with its operands and numbers in the order of their declaration.
    pub(crate) fn finish(self) -> Result<(Kernel, Vec<Bind>, Vec<u32>)> {
        let (label, threads, stays) = (self.label.clone(), self.threads, self.stays);
        let Declared { text, operands, numbers } = self.into_parts()?;
        let (before, entry, body) =
            entry_point(&text).map_err(|what| Error::Internal(format!("kernel {label}: {what}")))?;
        let mut declared = String::new();
        for (number, DeclaredOperand { name, ty, bind }) in operands.iter().enumerate() {
            let access = if matches!(bind, Bind::Write(_)) { "read_write" } else { "read" };
            add_line!(declared, "@group(0) @binding({number}) var<storage, {access}> {name}: {ty};");
        }
        let mut fields = String::new();
        for DeclaredNumber { name, ty, .. } in &numbers {
            add_line!(fields, "    {name}: {ty},");
        }
        let whole = format!(
            "const THREADS: u32 = {threads}u;\n{declared}struct Constants {{\n    step: u32,\n{fields}}}\n\
             var<immediate> constants: Constants;\n{before}{entry}{body}",
        );
        let operands = operands.into_iter().map(|operand| operand.bind).collect();
        let numbers = numbers.into_iter().map(|number| number.bits).collect();
        Ok((Kernel::new(label, &whole).with_stays(stays), operands, numbers))
    }
}

/// Whether a text calls something by this name.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(|c| goes_on(c) || c == '.') && !text[at + name.len()..].starts_with(goes_on)
    })
}

/// What stands before `main`, its head with all that its parameters are made of, and what comes after.
fn entry_point(text: &str) -> Result<(&str, String, &str), String> {
    let split = text.split_once("fn main(").and_then(|(before, rest)| {
        let (parameters, body) = rest.split_once(") {\n")?;
        Some((before, parameters, body))
    });
    let Some((before, parameters, body)) = split else { return Err("it has no main".into()) };
    if before.contains("@compute") {
        return Ok((before, format!("fn main({parameters}) {{\n"), body));
    }
    let parameters: Vec<&str> =
        parameters.split(',').map(|one| one.trim().trim_end_matches(": u32")).collect();
    let numbers =
        "@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>, ";
    let thread = "@builtin(local_invocation_index) thread: u32";
    let (given, first) = match parameters[..] {
        [""] => (String::new(), String::new()),
        ["thread"] => (thread.into(), String::new()),
        [group, "thread"] => {
            (format!("{numbers}{thread}"), format!("    let {group} = group_index(workgroup, workgroups);\n"))
        }
        // Who asks for subgroups wants control flow that is the same for all of them, and what a function
        // gives back counts as different from thread to thread.
        [group, "thread", "subgroup"] => (
            format!("{numbers}{thread}, @builtin(subgroup_id) subgroup: u32"),
            format!("    let {group} = workgroup.x + workgroup.y * workgroups.x;\n"),
        ),
        [group, "subgroup", "lane"] => (
            format!(
                "{numbers}@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32"
            ),
            format!("    let {group} = workgroup.x + workgroup.y * workgroups.x;\n"),
        ),
        [i] => (
            format!("{numbers}{thread}"),
            format!("    let {i} = group_index(workgroup, workgroups) * THREADS + thread;\n"),
        ),
        _ => return Err("main has other parameters than its thread's number and its workgroup's".into()),
    };
    Ok((before, format!("@compute @workgroup_size(THREADS)\nfn main({given}) {{\n{first}"), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shader: Shader) -> String {
        let (kernel, _, _) = shader.finish().expect("a kernel");
        kernel.source().to_string()
    }

    #[track_caller]
    fn refused(shader: Shader, why: &str) {
        let error = shader.finish().expect_err("a mistake").to_string();
        assert!(error.contains("kernel k") && error.contains(why), "{error}");
    }

    #[test]
    fn main_gets_what_its_parameters_name() {
        let head = |main: &str| text(Shader::new("k", main));
        assert!(
            head("fn main(at: u32) {\n}\n").contains("let at = group_index(workgroup, workgroups) * THREADS")
        );
        let both = head("fn main(row: u32, thread: u32) {\n}\n");
        assert!(
            both.contains("let row = group_index(workgroup, workgroups);\n")
                && both.contains(" thread: u32) {")
        );
        let units = head("fn main(group: u32, thread: u32, subgroup: u32) {\n}\n");
        assert!(units.contains("subgroup_id") && !units.contains("= group_index"));
        let exchanging = head("fn main(group: u32, subgroup: u32, lane: u32) {\n}\n");
        assert!(
            exchanging.contains("subgroup_invocation_id) lane: u32) {")
                && !exchanging.contains("= group_index")
        );
        assert!(!head("fn main(thread: u32) {\n}\n").contains("num_workgroups"));
        assert!(head("fn main() {\n}\n").contains("@workgroup_size(THREADS)\nfn main() {\n}"));
        assert!(!head("@compute @workgroup_size(8)\nfn main() {\n}\n").contains("workgroup_size(THREADS)"));
        refused(Shader::new("k", "fn main(a: u32, b: u32) {\n}\n"), "other parameters");
        refused(Shader::new("k", "fn other() {\n}\n"), "no main");
    }

    #[test]
    fn numbers_go_together_with_their_fields() {
        let shader = Shader::new("k", "fn main(i: u32) {\n    constants.rows; constants.rate;\n}\n");
        let (kernel, operands, numbers) =
            shader.number("rows", 7usize).real("rate", 0.5).finish().expect("a kernel");
        assert!(kernel.source().contains("    step: u32,\n    rows: u32,\n    rate: f32,\n}"));
        assert_eq!((operands.len(), numbers), (0, vec![7, 0.5f32.to_bits()]));
    }

    #[test]
    fn mistakes_are_found() {
        let shader = || Shader::new("k", "fn main() {\n    #{BODY}\n}\n");
        refused(shader(), "#{BODY}");
        refused(shader().section("BODY", "").section("OTHER", ""), "\"OTHER\"");
        refused(shader().section("BODY", "constants.rows_of").number("rows", 1u32), "\"constants.rows\"");
        refused(shader().section("BODY", "").number("rows", u64::MAX), "\"rows\" does not fit 32 bits");
    }
}
