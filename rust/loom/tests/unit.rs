//! The unit tests that the library has in it, with the arguments of any other test binary.
//!
//! With `LOOM_TEST_TIMES=1` they run one after the other, and each says what it took of the processor.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use loom::unit_tests::Case;

fn main() -> ExitCode {
    let timed = std::env::var_os("LOOM_TEST_TIMES").is_some_and(|value| value == "1");
    let mut arguments = Arguments::from_args();
    if timed {
        // What threads take counts for the whole process.
        arguments.test_threads = Some(1);
    }
    let trials = loom::unit_tests::CASES.iter().map(|case| {
        let run = move || if timed { run_timed(case) } else { (case.run)().map_err(Failed::from) };
        Trial::test(name(case), run).with_ignored_flag(case.ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The name as the built-in runner has it: without the crate.
fn name(case: &Case) -> &'static str {
    case.name.split_once("::").map_or(case.name, |(_, path)| path)
}

fn run_timed(case: &Case) -> Result<(), Failed> {
    let before = processor_seconds()?;
    let outcome = (case.run)().map_err(Failed::from);
    eprintln!("{:9.2} s of the processor: {}", processor_seconds()? - before, name(case));
    outcome
}

/// What this process has had of the processor so far, in user and in system mode, from Linux's `/proc/self/stat`.
fn processor_seconds() -> Result<f64, Failed> {
    // Fields of `proc_pid_stat(5)`, counted from behind the name, which ends with a parenthesis.
    const USER: usize = 11;
    const SYSTEM: usize = 12;
    let text =
        std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("LOOM_TEST_TIMES: {error}"))?;
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok());
    match (ticks(USER), ticks(SYSTEM)) {
        // A hundred ticks a second on every architecture that Linux runs on today.
        (Some(user), Some(system)) => Ok((user + system) / 100.0),
        _ => Err(format!("LOOM_TEST_TIMES: /proc/self/stat is not understood: {text}").into()),
    }
}
