//! A kernel that runs for several lists of operands in one dispatch: the third dimension of its grid says for which.

use super::names::{is_of_name, rewrite};
use super::template::Kernel;

/// The number of the list in all functions, which is the same for all threads of a workgroup: a parameter, and not a
/// variable of each thread, so that drivers see that it is the workgroup's number.
const LIST: &str = "list_of_";

/// The numbers of all lists.
const NUMBERS: &str = "numbers_of_";

/// The numbers that a dispatch brings along for its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The same for all.
    Same,
    /// Of each list its own, and its own number of workgroups in one dimension.
    Own,
}

impl Kernel {
    /// The same for up to `lists` lists of operands, each bound as an array, of which workgroup `(x, y, n)` takes the
    /// n-th; `None` for text that is not loom's own, whose workgroups wait for each other, or that calls something of its
    /// own like an operand.
    ///
    /// Where lists have numbers of their own, these lie behind the operands in one array more, each behind how many
    /// workgroups its list has: see [`Numbers`].
    pub(crate) fn repeated(&self, lists: usize, numbers: Numbers) -> Option<Kernel> {
        if !self.is_trusted() || self.stays() {
            return None;
        }
        let (before, text) = self.split();
        let operands: Vec<&str> = text.lines().filter_map(operand).map(|operand| operand.name).collect();
        let functions: Vec<&str> = text.lines().filter_map(function).filter(|name| *name != "main").collect();
        let mut whole = String::with_capacity(before.len() + 2 * text.len());
        whole.push_str("enable wgpu_binding_array;\n");
        whole.push_str(before);
        let (head, body) = text.split_once("fn main(")?;
        let (parameters, body) = body.split_once(") {\n")?;
        let names = Names { operands: &operands, functions: &functions, numbers };
        if numbers == Numbers::Own {
            let number = operands.len();
            whole += &format!(
                "@group(0) @binding({number}) var<storage, read> {NUMBERS}: binding_array<Constants, {lists}>;\n"
            );
        }
        names.rewrite(head, lists, &mut whole)?;
        let group = parameters.split_once("@builtin(workgroup_id) ").map(|(_, rest)| rest);
        let group = group.and_then(|rest| rest.split(':').next());
        let (more, group) = match group {
            Some(group) => ("", group),
            None if parameters.trim().is_empty() => {
                ("@builtin(workgroup_id) group_of_: vec3<u32>", "group_of_")
            }
            None => ("@builtin(workgroup_id) group_of_: vec3<u32>, ", "group_of_"),
        };
        whole += &format!("fn main({more}{parameters}) {{\n    let {LIST} = {group}.z;\n");
        if numbers == Numbers::Own {
            // In place of the step's number, which is the same for all.
            whole += &format!("    if {group}.x >= {NUMBERS}[{LIST}].step {{ return; }}\n");
        }
        names.rewrite(body, lists, &mut whole)?;
        Some(self.with_source(whole))
    }
}

/// A declaration of an operand.
struct Declaration<'a> {
    /// All before its name.
    head: &'a str,
    name: &'a str,
    ty: &'a str,
}

/// The operand that a line declares.
fn operand(line: &str) -> Option<Declaration<'_>> {
    let rest = line.strip_prefix("@group(0) @binding(")?;
    let head = line.len() - rest.len() + rest.find("> ")? + 2;
    let (name, ty) = line[head..].strip_suffix(';')?.split_once(": ")?;
    Some(Declaration { head: &line[..head], name, ty })
}

/// The function that a line begins.
fn function(line: &str) -> Option<&str> {
    line.strip_prefix("fn ")?.split('(').next()
}

/// What becomes something else in a text.
struct Names<'a> {
    operands: &'a [&'a str],
    functions: &'a [&'a str],
    numbers: Numbers,
}

impl Names<'_> {
    /// Appends the text with operands as arrays of `lists`, and with functions that are told the list; `None` where a
    /// name of an operand is used for something else, too.
    fn rewrite(&self, text: &str, lists: usize, whole: &mut String) -> Option<()> {
        let mut is_clear = true;
        for line in text.split_inclusive('\n') {
            if let Some(Declaration { head, name, ty }) = operand(line.trim_end()) {
                // Arrays of bindings are of structures.
                *whole += &format!(
                    "struct Bound_{name} {{ all: {ty} }}\n{head}{name}: binding_array<Bound_{name}, {lists}>;\n"
                );
                continue;
            }
            rewrite(line, whole, |whole, name| {
                whole.push_str(name.text);
                if name.is_member {
                    return 0;
                }
                if name.text == "constants" && self.numbers == Numbers::Own && of_a_list(name.after) {
                    whole.truncate(whole.len() - name.text.len());
                    *whole += &format!("{NUMBERS}[{LIST}]");
                    return 0;
                }
                if self.operands.contains(&name.text) {
                    // A variable, a parameter or a field of this name.
                    let is_declared = matches!(name.before, "let" | "var" | "const");
                    is_clear &= !is_declared && !name.after.trim_start().starts_with(':');
                    *whole += &format!("[{LIST}].all");
                } else if self.functions.contains(&name.text)
                    && let Some(arguments) = name.after.strip_prefix('(')
                {
                    let ty = if name.before == "fn" { ": u32" } else { "" };
                    let more = if arguments.trim_start().starts_with(')') { "" } else { ", " };
                    *whole += &format!("({LIST}{ty}{more}");
                    return 1;
                }
                0
            });
        }
        is_clear.then_some(())
    }
}

/// Whether what follows the name of all numbers is one that lists have of their own.
fn of_a_list(after: &str) -> bool {
    after.strip_prefix('.').is_some_and(|member| {
        let end = member.find(|c: char| !is_of_name(c)).unwrap_or(member.len());
        &member[..end] != "step"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::{Operand, Shader};

    fn kernel(text: &str) -> Kernel {
        let shader = Shader::new("k", text).unchecked().read("x", "vec4<f32>", Operand::unbound());
        shader.write("y", "f32", Operand::unbound()).unchecked().finish().expect("a kernel").0
    }

    #[test]
    fn operands_are_arrays_and_functions_are_told_of_which_list() {
        let text = "fn none() -> u32 { return 0u; }\nfn one(i: u32) -> f32 {\n    return x[i + none()].x; // x of one(i)\n}\n\
                    fn main(group: u32, thread: u32) {\n    y[thread] = one(thread) + s.x;\n}\n";
        let repeated = kernel(text).repeated(8, Numbers::Same).expect("a kernel");
        for part in [
            "struct Bound_x { all: array<vec4<f32>> }\n@group(0) @binding(0) var<storage, read> x: binding_array<Bound_x, 8>;",
            "@group(0) @binding(1) var<storage, read_write> y: binding_array<Bound_y, 8>;",
            "fn none(list_of_: u32) -> u32",
            "fn one(list_of_: u32, i: u32) -> f32",
            "x[list_of_].all[i + none(list_of_)].x; // x of one(i)",
            "    let list_of_ = workgroup.z;\n",
            "y[list_of_].all[thread] = one(list_of_, thread) + s.x;",
        ] {
            assert!(repeated.source().contains(part), "{part}\n{}", repeated.source());
        }
        // What all kernels have before their text stays.
        assert!(repeated.source().contains("fn is_nan(x: f32) -> bool {"));
    }

    #[test]
    fn numbers_of_lists_lie_in_memory() {
        let text = "fn twice() -> u32 { return 2u * constants.n; }\n\
                    fn main(i: u32) {\n    if i < constants.n { y[i] = f32(twice() + constants.step) * constants.nth; }\n}\n";
        let shader =
            Shader::new("k", text).write("y", "f32", Operand::unbound()).number("n", 3u32).real("nth", 0.5);
        let kernel = shader.finish().expect("a kernel").0.repeated(4, Numbers::Own).expect("a kernel");
        for part in [
            "@group(0) @binding(1) var<storage, read> numbers_of_: binding_array<Constants, 4>;",
            "    let list_of_ = workgroup.z;\n    if workgroup.x >= numbers_of_[list_of_].step { return; }\n",
            "return 2u * numbers_of_[list_of_].n;",
            "if i < numbers_of_[list_of_].n { y[list_of_].all[i] = f32(twice(list_of_) + constants.step) * numbers_of_[list_of_].nth; }",
        ] {
            assert!(kernel.source().contains(part), "{part}\n{}", kernel.source());
        }
    }

    #[test]
    fn a_main_that_asks_for_no_workgroup_asks_for_it() {
        for (main, head) in [
            ("fn main() {\n}\n", "fn main(@builtin(workgroup_id) group_of_: vec3<u32>) {"),
            (
                "fn main(thread: u32) {\n}\n",
                "fn main(@builtin(workgroup_id) group_of_: vec3<u32>, @builtin(local_invocation_index) thread: u32) {",
            ),
        ] {
            let repeated = kernel(main).repeated(2, Numbers::Same).expect("a kernel");
            assert!(repeated.source().contains(head), "{}", repeated.source());
            assert!(repeated.source().contains("let list_of_ = group_of_.z;"));
        }
    }

    #[test]
    fn names_that_are_used_twice_are_left_alone() {
        for text in ["    let x = 1u;\n", "    var y = 1u;\n"] {
            assert!(kernel(&format!("fn main(i: u32) {{\n{text}}}\n")).repeated(2, Numbers::Same).is_none());
        }
        assert!(
            kernel("fn f(x: u32) -> u32 { return x; }\nfn main(i: u32) {\n}\n")
                .repeated(2, Numbers::Same)
                .is_none()
        );
        assert!(kernel("fn main(i: u32) {\n}\n").with_stays(true).repeated(2, Numbers::Same).is_none());
        assert!(kernel("fn main(i: u32) {\n}\n").checked().repeated(2, Numbers::Same).is_none());
    }
}
