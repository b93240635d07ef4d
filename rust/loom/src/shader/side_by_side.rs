//! Kernels that wait for nothing of each other as one dispatch: workgroups go to the first until its share is used
//! up, then to the next.

use super::declaration::{DeclaredNumber, DeclaredOperand, Shader, mentions};
use super::names::{is_of_name, rewrite};
use super::operand::Operand;
use super::recorder::{Bind, Recorder};
use crate::{Error, Result};
use std::collections::HashMap;

/// A kernel, and on how many workgroups it runs.
pub type Share = (Shader, usize);

impl Shader {
    /// Runs these kernels as one dispatch. All have workgroups of the same size; memory of a workgroup by a name in
    /// `shared` is the same for all of them, for what only one kernel uses at a time.
    ///
    /// # Errors
    /// [`Error::Internal`] for a mistake in a declaration, for none and for kernels that do not go together, and as
    /// [`Recorder::dispatch`].
    pub fn side_by_side(
        recorder: &mut Recorder<'_>,
        label: &str,
        shared: &[&str],
        kernels: Vec<Share>,
    ) -> Result<()> {
        if let [(shader, groups)] = &kernels[..] {
            return shader.clone().groups(recorder, *groups);
        }
        let all = kernels.iter().map(|(_, groups)| groups).sum();
        joined(label, shared, kernels)?.groups(recorder, all)
    }
}

/// One kernel of several.
fn joined(label: &str, shared: &[&str], kernels: Vec<Share>) -> Result<Shader> {
    let wrong = |what: &str| Error::Internal(format!("kernels of \"{label}\" side by side: {what}"));
    let threads = kernels.first().ok_or_else(|| wrong("there are none"))?.0.thread_count();
    if kernels.iter().any(|(shader, _)| shader.has_waiting()) {
        return Err(wrong("workgroups of one wait for each other"));
    }
    let mut whole = Shader::new(label, "").threads(threads);
    let mut main = String::new();
    let mut exchanging = None;
    let mut bound: Vec<DeclaredOperand> = Vec::new();
    let mut brought: Vec<(String, DeclaredNumber)> = Vec::new();
    let mut first_group = 0;
    for (place, (shader, groups)) in kernels.into_iter().enumerate() {
        if shader.thread_count() != threads {
            return Err(wrong("their workgroups differ"));
        }
        let parts = shader.into_parts()?;
        let mut names: HashMap<&str, String> = HashMap::new();
        for DeclaredOperand { name, ty, bind } in &parts.operands {
            // What several of them read is bound once.
            let found = bound.iter().find(|held| held.ty == *ty && is_same_read(&held.bind, bind));
            let joined = found.map_or_else(|| format!("{name}_of_{place}"), |held| held.name.clone());
            if found.is_none() {
                whole = whole.bind(&joined, ty, bind.clone());
                bound.push(DeclaredOperand { name: joined.clone(), ty: ty.clone(), bind: bind.clone() });
            }
            names.insert(name, joined);
        }
        let mut fields: HashMap<&str, String> = HashMap::new();
        // Declarations that several kernels have in common bring numbers that not all of them use.
        for number in
            parts.numbers.iter().filter(|number| mentions(&parts.text, &format!("constants.{}", number.name)))
        {
            // And what has the same value for several of them is brought once.
            let found = brought.iter().find(|(_, held)| held == number);
            let joined =
                found.map_or_else(|| format!("{}_of_{place}", number.name), |(joined, _)| joined.clone());
            if found.is_none() {
                whole = whole.field(&joined, number.ty, number.bits);
                brought.push((joined.clone(), number.clone()));
            }
            fields.insert(&number.name, joined);
        }
        for name in declared(&parts.text) {
            if !shared.contains(&name) {
                names.insert(name, format!("{name}_of_{place}"));
            }
        }
        let is_declared = |line: &str| {
            place > 0 && shared.iter().any(|name| line.starts_with(&format!("var<workgroup> {name}:")))
        };
        let text: String = parts.text.split_inclusive('\n').filter(|line| !is_declared(line)).collect();
        whole = whole.append(&renamed(&text, &names, &fields));
        let parameters = main_parameters(&text).ok_or_else(|| wrong("one has no main"))?;
        let exchanges = matches!(parameters[..], [_, "subgroup", "lane"]);
        if *exchanging.get_or_insert(exchanges) != exchanges {
            return Err(wrong("not all of them number threads by subgroups"));
        }
        let call = match parameters[..] {
            [_, "subgroup", "lane"] => format!("main_of_{place}(group - {first_group}u, subgroup, lane)"),
            [] => format!("main_of_{place}()"),
            ["thread"] => format!("main_of_{place}(thread)"),
            [_, "thread"] => format!("main_of_{place}(group - {first_group}u, thread)"),
            [_] => format!("main_of_{place}((group - {first_group}u) * THREADS + thread)"),
            _ => return Err(wrong("one asks for more than its number")),
        };
        first_group += groups;
        main += &format!("    if group < {first_group}u {{\n        {call};\n        return;\n    }}\n");
    }
    let numbers = if exchanging == Some(true) { "subgroup: u32, lane: u32" } else { "thread: u32" };
    Ok(whole.append(&format!("fn main(group: u32, {numbers}) {{\n{main}}}\n")).unchecked())
}

/// Whether two operands are the same one, which neither kernel writes.
fn is_same_read(one: &Bind, other: &Bind) -> bool {
    let same = |a: &Operand, b: &Operand| {
        a.allocation().is(b.allocation()) && a.offset() == b.offset() && a.bytes() == b.bytes()
    };
    matches!((one, other), (Bind::Read(a), Bind::Read(b)) if same(a, b))
}

/// The names that a text declares for the whole module.
fn declared(text: &str) -> Vec<&str> {
    const STARTS: [&str; 5] = ["fn ", "const ", "struct ", "var<workgroup> ", "var<private> "];
    text.lines()
        .filter_map(|line| {
            let rest = STARTS.iter().find_map(|start| line.strip_prefix(start))?;
            rest.split(|c: char| !is_of_name(c)).next().filter(|name| !name.is_empty())
        })
        .collect()
}

/// The names of the parameters of a text's `main`.
fn main_parameters(text: &str) -> Option<Vec<&str>> {
    let (_, rest) = text.split_once("fn main(")?;
    let (parameters, _) = rest.split_once(") {\n")?;
    let names = parameters.split(',').map(|one| one.trim().trim_end_matches(": u32"));
    Some(names.filter(|name| !name.is_empty()).collect())
}

/// The text with these names of the module, and these fields of `constants`, called otherwise.
fn renamed(text: &str, names: &HashMap<&str, String>, fields: &HashMap<&str, String>) -> String {
    let mut whole = String::with_capacity(2 * text.len());
    rewrite(text, &mut whole, |whole, name| {
        let new = match (name.is_member, name.before) {
            (true, "constants") => fields.get(name.text),
            (true, _) => None,
            (false, _) => names.get(name.text),
        };
        whole.push_str(new.map_or(name.text, String::as_str));
        0
    });
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shader: Shader) -> String {
        let (kernel, _, _) = shader.finish().expect("a kernel");
        kernel.source().to_string()
    }

    fn one(body: &str) -> Shader {
        Shader::new(
            "one",
            &format!("var<workgroup> sums: array<f32, 4>;\nfn twice(x: u32) -> u32 {{ return x; }}\n{body}"),
        )
    }

    #[test]
    fn names_are_kept_apart_and_what_is_the_same_is_declared_once() {
        let main = "fn main(group: u32, thread: u32) {\n    let v = twice(constants.rows) + constants.wide.rows; // rows of twice\n    sums[0] = x[v];\n}\n";
        let x = Operand::unbound();
        let with =
            |rows: u32| one(main).number("rows", rows).number("wide", 3u32).read("x", "f32", x.clone());
        let joined = joined("both", &["sums"], vec![(with(5), 2), (with(7), 3)]).expect("a kernel");
        let (kernel, operands, numbers) = joined.finish().expect("a kernel");
        let text = kernel.source();
        assert_eq!((operands.len(), numbers), (1, vec![5, 3, 7]));
        assert_eq!(text.matches("var<workgroup> sums:").count(), 1);
        for part in [
            "twice_of_0(constants.rows_of_0) + constants.wide_of_0.rows; // rows of twice",
            "twice_of_1(constants.rows_of_1) + constants.wide_of_0.rows",
            "sums[0] = x_of_0[v]",
            "if group < 2u {\n        main_of_0(group - 0u, thread);",
            "if group < 5u {\n        main_of_1(group - 2u, thread);",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn mains_of_every_kind_are_called() {
        let kinds = ["fn main() {\n}\n", "fn main(thread: u32) {\n}\n", "fn main(i: u32) {\n}\n"];
        let kernels = kinds.map(|main| (Shader::new("k", main), 1)).to_vec();
        let text = text(joined("all", &[], kernels).expect("a kernel"));
        for call in ["main_of_0();", "main_of_1(thread);", "main_of_2((group - 2u) * THREADS + thread);"] {
            assert!(text.contains(call), "{call}\n{text}");
        }
    }

    #[test]
    fn kernels_that_number_threads_by_subgroups_go_together() {
        let kernels = ["k", "l"]
            .map(|name| (Shader::new(name, "fn main(group: u32, subgroup: u32, lane: u32) {\n}\n"), 2));
        let other = (Shader::new("m", "fn main(thread: u32) {\n}\n"), 1);
        let text = text(joined("all", &[], kernels.to_vec()).expect("a kernel"));
        assert!(text.contains("main_of_1(group - 2u, subgroup, lane);"), "{text}");
        assert!(joined("all", &[], [kernels.to_vec(), vec![other]].concat()).is_err());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let kernel = |threads| (Shader::new("k", "fn main() {\n}\n").threads(threads), 1);
        for kernels in [vec![], vec![kernel(64), kernel(128)]] {
            assert!(joined("k", &[], kernels).is_err());
        }
    }
}
