//! What tests of kernels' texts share.

use super::{Kernel, Shader};

/// Asserts that what this declares is a kernel that naga takes.
pub(crate) fn is_valid(shader: Shader) {
    let (kernel, _, _) = shader.finish().expect("a kernel");
    takes(&kernel);
}

/// Asserts that naga takes a kernel's text, and makes of it what drivers are given.
pub(crate) fn takes(kernel: &Kernel) {
    let module = naga::front::wgsl::parse_str(kernel.source())
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(kernel.source()), kernel.source()));
    let flags = naga::valid::ValidationFlags::all();
    let info = naga::valid::Validator::new(flags, naga::valid::Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(kernel.source()), kernel.source()));
    let options = naga::back::spv::Options { lang_version: (1, 4), ..Default::default() };
    naga::back::spv::write_vec(&module, &info, &options, None).expect("SPIR-V");
}
