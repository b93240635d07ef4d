//! What tests of kernels' texts share.

use super::{Kernel, Recorded, Shader};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Asserts that naga takes a kernel's text, and makes of it what drivers are given.
pub(crate) fn is_valid(shader: Shader) {
    let (kernel, _, _) = shader.finish().expect("a kernel");
    takes(&kernel);
}

/// Asserts that naga takes what a kernel for several lists of operands is made of each of these: adapters in software
/// see no arrays of operands. Kernels that are called alike are alike but for their extents, so one of them is tried.
pub(crate) fn are_repeated(recorded: &[Recorded]) {
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    for recorded in recorded {
        let Recorded::Kernel(call) = recorded else { continue };
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.get_or_insert_default().insert(call.kernel.label().into()) {
            continue;
        }
        drop(seen);
        if let Some(kernel) = call.kernel.repeated(4) {
            takes(&kernel);
        }
    }
}

fn takes(kernel: &Kernel) {
    let module = naga::front::wgsl::parse_str(kernel.source())
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(kernel.source()), kernel.source()));
    let flags = naga::valid::ValidationFlags::all();
    let info = naga::valid::Validator::new(flags, naga::valid::Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(kernel.source()), kernel.source()));
    let options = naga::back::spv::Options { lang_version: (1, 4), ..Default::default() };
    naga::back::spv::write_vec(&module, &info, &options, None).expect("SPIR-V");
}
