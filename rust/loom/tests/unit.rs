//! The unit tests that the library has in it, with the arguments of any other test binary.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let cases = loom::unit_tests::CASES.iter();
    let trials = cases.map(|case| {
        // As the built-in runner names them: without the crate.
        let name = case.name.split_once("::").map_or(case.name, |(_, path)| path);
        Trial::test(name, || (case.run)().map_err(Failed::from)).with_ignored_flag(case.ignored)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
