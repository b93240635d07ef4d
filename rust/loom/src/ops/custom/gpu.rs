//! A user's operation on a GPU: text that the user brings, with checks.

use super::{Custom, CustomExtents, CustomOperation};
use crate::ops::{Args, StepValues};
use crate::shader::{Bind, GpuOperation, HostWork, Kernel, Operand, Recorder};
use crate::simd::Cpu;
use crate::{Error, Result};
use std::sync::Arc;

/// An operation that the host computes in the middle of a frame.
#[derive(Debug)]
struct OnHost {
    operation: Arc<dyn CustomOperation>,
    extents: CustomExtents,
}

impl HostWork for OnHost {
    fn run(&self, rows: usize, reads: &[&[u8]], writes: &mut [&mut [u8]]) -> Result<()> {
        let cpu = Cpu::global()?;
        let values = StepValues::default();
        let mut args = Args::new(cpu, rows, &values);
        args.accumulate = self.extents.accumulate;
        args.path = self.extents.path;
        for (view, bytes) in args.reads.iter_mut().zip(reads) {
            view.bytes = bytes;
        }
        for (result, bytes) in args.writes.iter_mut().zip(writes) {
            *result = bytes;
        }
        self.operation.run_f32(&mut args)
    }
}

impl GpuOperation for Custom {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let reads: Vec<Operand> =
            (0..recorder.reads()).map(|number| recorder.read(number)).collect::<Result<_>>()?;
        let writes: Vec<Operand> =
            (0..recorder.writes()).map(|number| recorder.write(number)).collect::<Result<_>>()?;
        if let Some(dtype) = reads.iter().find_map(|operand| operand.packing.map(|packing| packing.dtype)) {
            return Err(Error::Device(format!(
                "operation \"{}\" reads weights packed as {dtype}, which its WGSL cannot decode; use the device \
                 \"cpu\", or the network's own precision",
                self.0.name()
            )));
        }
        let elements = |operands: &[Operand]| operands.iter().map(|operand| operand.elements).collect();
        let extents = CustomExtents {
            rows: recorder.rows(),
            accumulate: recorder.accumulate(),
            path: recorder.path(),
            reads: elements(&reads),
            writes: elements(&writes),
        };
        let kernel = self.0.wgsl(&extents);
        if kernel.is_none() && self.0.on_host() {
            self.0.cuts()?;
            recorder.on_host(Arc::new(OnHost { operation: self.0.clone(), extents }));
            return Ok(());
        }
        let kernel = kernel.ok_or_else(|| {
            Error::Device(format!(
                "operation \"{}\" has no WGSL; use the device \"cpu\" or implement CustomOperation::wgsl",
                self.0.name()
            ))
        })?;
        let operands: Vec<Bind> =
            reads.into_iter().map(Bind::Read).chain(writes.into_iter().map(Bind::Write)).collect();
        let text = Kernel::new(self.to_string(), &kernel.source).checked();
        recorder.dispatch(text, operands, kernel.constants, kernel.groups)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{check, gpu, run};
    use crate::ops::testing::{Setting, numbers};
    use crate::ops::{Args, CustomOperation, CustomWgsl, Op};
    use std::sync::Arc;

    /// `y = x - rate`, with a kernel or without.
    #[derive(Debug)]
    struct Less {
        source: Option<&'static str>,
    }

    const LESS: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
struct Constants { step: u32, elements: u32 }
var<immediate> constants: Constants;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * 64u + thread;
    // What is far out of range does no harm.
    let other = x[i + 1000000000u];
    if i < constants.elements {
        y[i] = x[i] - steps[constants.step].rate + 0.0 * other;
    }
}
";

    impl CustomOperation for Less {
        fn name(&self) -> &str {
            "less"
        }

        fn run_f32(&self, args: &mut Args<'_>) -> Result<()> {
            let (rate, x) = (args.values.rate as f32, args.read::<f32>(0));
            for (y, x) in args.write::<f32>(0).iter_mut().zip(x) {
                *y = x - rate;
            }
            Ok(())
        }

        fn wgsl(&self, extents: &CustomExtents) -> Option<CustomWgsl> {
            assert_eq!((extents.rows, extents.reads.len()), (10, 1));
            let elements = extents.writes[0];
            Some(CustomWgsl {
                source: self.source?.to_string(),
                constants: vec![elements as u32],
                groups: elements.div_ceil(64),
            })
        }
    }

    fn setting() -> Setting<f32> {
        let mut setting = Setting::new(10, &[&numbers(4, 330)], &[330]);
        setting.values.rate = 0.25;
        setting
    }

    #[test]
    fn a_kernel_of_ones_own_runs() {
        check(Custom(Arc::new(Less { source: Some(LESS) })), &setting());
    }

    #[test]
    fn an_operation_without_a_kernel_says_so() {
        let Some(gpu) = gpu() else { return };
        let op = Op::Custom(Custom(Arc::new(Less { source: None })));
        let Err(Error::Device(message)) = run(&gpu, &op, &setting(), None) else { panic!("it ran") };
        assert!(message.contains("\"less\"") && message.contains("CustomOperation::wgsl"), "{message}");
    }

    #[test]
    fn text_that_is_no_wgsl_is_an_error() {
        // On a device of its own, as other tests must not find its failure.
        if gpu().is_none() {
            return;
        }
        let gpu = crate::gpu::open_another(0).expect("a second device");
        let op = Op::Custom(Custom(Arc::new(Less { source: Some("fn main() { no }") })));
        assert!(matches!(run(&gpu, &op, &setting(), None), Err(Error::Device(_))));
    }
}
