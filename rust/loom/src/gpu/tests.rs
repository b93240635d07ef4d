//! What the engine promises, whatever the operations do.

use super::dispatch::{Dispatch, Work, schedule};
use super::frame::Frame;
use super::frame::new_table;
use super::recording;
use super::steps::encode_step;
use super::temporaries::Temporaries;
use super::testing::gpu;
use super::{Gpu, Timing, open_another};
use crate::ops::StepValues;
use crate::shader::{Accelerator, Allocation, Bind, Kernel, Operand, Recorded, Recorder, Shader, Template};
use crate::{Error, Result};

/// Adds a number to each element, so that the order of dispatches shows in the result.
const ADD: &str = "
fn main(i: u32) {
    if i < constants.elements {
        sink[i] = source[i] * 2.0 + f32(constants.add) + steps[constants.step].rate;
    }
}
";

fn add(recorder: &mut Recorder<'_>, from: &Operand, to: &Operand, number: u32) -> Result<()> {
    Shader::new("add", ADD)
        .threads(1)
        .read("source", "f32", from.clone())
        .write("sink", "f32", to.clone())
        .number("elements", to.elements)
        .number("add", number)
        .elements(recorder, to.elements)
}

fn recorder(gpu: &Gpu) -> Result<Recorder<'_>> {
    Ok(Recorder::new(gpu, 1, Operand::allocate(gpu, "control", 4)?))
}

fn run(gpu: &Gpu, dispatches: &[Dispatch]) -> Result<()> {
    let (table, group) = new_table(gpu, 1)?;
    gpu.upload(&table, 0, &encode_step(&StepValues { rate: 0.5, ..StepValues::default() }, 0));
    let mut frame = Frame::begin(gpu, &group);
    dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
    frame.finish(1)
}

fn read(gpu: &Gpu, operand: &Operand) -> Result<Vec<f32>> {
    let mut elements = vec![0f32; operand.elements];
    gpu.download(&mut [(operand.clone(), bytemuck::cast_slice_mut(&mut elements))])?;
    Ok(elements)
}

#[test]
fn levels_keep_what_depends_in_order() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let [a, b, c, d] = [0; 4].map(|_| Operand::allocate(&*gpu, "test", 1));
    let (a, b, c, d) = (a?, b?, c?, d?);
    let mut recorder = recorder(&gpu)?;
    add(&mut recorder, &a, &b, 1)?; // level 0
    add(&mut recorder, &b, &c, 2)?; // level 1: reads b
    add(&mut recorder, &a, &d, 3)?; // level 0: needs nothing
    add(&mut recorder, &d, &b, 4)?; // level 2: writes b, which was read
    add(&mut recorder, &b, &a, 5)?; // level 3
    let order: Vec<u32> = schedule(Dispatch::all(&gpu, recorder.recorded.clone(), 0))
        .iter()
        .map(|dispatch| match &dispatch.work {
            Work::Kernel(bound) => bound.constants[2],
            Work::Host(_) => 0,
        })
        .collect();
    assert_eq!(order, [1, 3, 2, 4, 5]);
    run(&gpu, &schedule(Dispatch::all(&gpu, recorder.recorded, 0)))?;
    assert_eq!(read(&gpu, &c)?, [1.5 * 2.0 + 2.5]);
    assert_eq!(read(&gpu, &a)?, [(3.5 * 2.0 + 4.5) * 2.0 + 5.5]);
    Ok(())
}

#[test]
fn calls_of_one_kernel_that_wait_for_nothing_of_each_other_are_one_dispatch() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let mut recorder = recorder(&gpu)?;
    let mut ends = Vec::new();
    // Chains of two, nine of three elements and one of four.
    for (chain, elements) in [3; 9].into_iter().chain([4]).enumerate() {
        let [a, b, c] = [0; 3].map(|_| Operand::allocate(&*gpu, "test", elements));
        let (a, b, c) = (a?, b?, c?);
        let start: Vec<f32> = (0..elements).map(|i| (10 * chain + i) as f32).collect();
        gpu.upload(a.allocation(), 0, bytemuck::cast_slice(&start));
        add(&mut recorder, &a, &b, 1)?;
        add(&mut recorder, &b, &c, 2)?;
        ends.push((c, start));
    }
    // What none of the others is like: another number, and more memory of the first chain.
    let other = Operand::allocate(&*gpu, "test", 3)?;
    add(&mut recorder, &ends[0].0, &other, 7)?;
    let list = Temporaries::default().place(&gpu, recorder.recorded)?;
    // Where kernels see no arrays of operands each call is one.
    let expected = if gpu.arrayed_operands() > 0 { 2 + 2 + 1 } else { 2 * 10 + 1 };
    assert_eq!(list.len(), expected);
    run(&gpu, &list)?;
    for (end, start) in &ends {
        let expected: Vec<f32> = start.iter().map(|x| (x * 2.0 + 1.5) * 2.0 + 2.5).collect();
        assert_eq!(read(&gpu, end)?, expected);
    }
    assert_eq!(read(&gpu, &other)?, [0.0, 1.0, 2.0].map(|x: f32| ((x * 2.0 + 1.5) * 2.0 + 2.5) * 2.0 + 7.5));
    Ok(())
}

/// Each result is made of the one before, so that no other order gives the same bits.
#[test]
fn what_several_threads_record_runs_in_order() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let halve = ADD.replace("* 2.0", "* 0.5");
    for count in [recording::FEWEST - 1, recording::FEWEST, 901] {
        let memory = [Operand::allocate(&*gpu, "test", 1)?, Operand::allocate(&*gpu, "test", 1)?];
        let mut recorder = recorder(&gpu)?;
        let rate = |step: usize| (step % 7) as f32 / 8.0;
        let mut expected = 0f32;
        for step in 0..count {
            Shader::new("halve", halve.as_str())
                .threads(1)
                .read("source", "f32", memory[step % 2].clone())
                .write("sink", "f32", memory[(step + 1) % 2].clone())
                .number("elements", 1usize)
                .number("add", step)
                .elements(&mut recorder, 1)?;
            expected = expected * 0.5 + step as f32 + rate(step);
        }
        let (table, group) = new_table(&gpu, count)?;
        let values =
            (0..count).map(|step| StepValues { rate: f64::from(rate(step)), ..StepValues::default() });
        let rows: Vec<u8> = values.flat_map(|values| encode_step(&values, 0)).collect();
        gpu.upload(&table, 0, &rows);
        let dispatches = Dispatch::all(&gpu, recorder.recorded, 0);
        gpu.compile(&dispatches)?;
        let all: Vec<(&Dispatch, u32)> = dispatches.iter().zip(0u32..).collect();
        let mut frame = Frame::begin(&gpu, &group);
        frame.record_all(&all);
        let last = frame.finish_unsent(count)?;
        // Whoever fetches what the frame has made has something to go on with.
        assert!(count < recording::FEWEST || last.is_some());
        last.map(|last| last.submit(&gpu));
        assert_eq!(read(&gpu, &memory[count % 2])?, [expected], "{count} dispatches");
    }
    Ok(())
}

#[test]
fn more_workgroups_than_one_dimension_has_are_folded() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let count = gpu.capabilities().max_groups + 1000;
    let (from, to) = (Operand::allocate(&*gpu, "from", count)?, Operand::allocate(&*gpu, "to", count)?);
    let mut recorder = recorder(&gpu)?;
    add(&mut recorder, &from, &to, 7)?;
    assert!(matches!(&recorder.recorded[0], Recorded::Kernel(call) if call.groups[1] == 2));
    run(&gpu, &Dispatch::all(&gpu, recorder.recorded, 0))?;
    assert!(read(&gpu, &to)?.iter().all(|x| *x == 7.5));
    Ok(())
}

#[test]
fn a_shader_that_does_not_compile_is_an_error() -> Result<()> {
    // Errors are the device's, so this test has one of its own.
    let (Some(_), Some(gpu)) = (gpu(), open_another(0)) else { return Ok(()) };
    let operand = Operand::allocate(&*gpu, "test", 1)?;
    let mut recorder = recorder(&gpu)?;
    let kernel = Kernel::new("broken", "fn main() { not wgsl }");
    recorder.dispatch(kernel, vec![Bind::Write(operand)], Vec::new(), 1)?;
    let error = run(&gpu, &Dispatch::all(&gpu, recorder.recorded, 0)).expect_err("an error");
    assert!(matches!(&error, Error::Device(message) if message.contains("broken")), "{error}");
    // The device goes on.
    let (from, to) = (Operand::allocate(&*gpu, "from", 1)?, Operand::allocate(&*gpu, "to", 1)?);
    let mut recorder = self::recorder(&gpu)?;
    add(&mut recorder, &from, &to, 1)?;
    run(&gpu, &Dispatch::all(&gpu, recorder.recorded, 0))?;
    assert_eq!(read(&gpu, &to)?, [1.5]);
    Ok(())
}

#[test]
fn memory_is_counted_and_its_want_reported() -> Result<()> {
    let (Some(_), Some(gpu)) = (gpu(), open_another(0)) else { return Ok(()) };
    let held: Allocation = gpu.storage("test", 1000)?;
    assert_eq!(gpu.allocated(), 1008);
    drop(held);
    assert_eq!(gpu.allocated(), 0);
    let error = gpu.storage("a test of giants", u64::MAX / 32).expect_err("too much").to_string();
    assert!(error.contains("MiB for a test of giants") && error.contains("batches"), "{error}");
    assert_eq!(gpu.allocated(), 0);
    Ok(())
}

#[test]
fn uploads_of_any_length_arrive() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    for len in [1usize, 3, 4, 5, 63, 64] {
        let bytes: Vec<u8> = (1..=len as u8).collect();
        let memory = gpu.storage("test", len as u64)?;
        gpu.upload(&memory, 0, &bytes);
        let mut back = vec![0u8; len];
        gpu.download(&mut [(Operand::new(&memory, 0, len.div_ceil(4)), &mut back)])?;
        assert_eq!(back, bytes);
    }
    Ok(())
}

#[test]
fn memory_for_reading_back_is_used_again() -> Result<()> {
    let (Some(_), Some(gpu)) = (gpu(), open_another(0)) else { return Ok(()) };
    let memory = gpu.storage("test", 64)?;
    for round in 1..4u8 {
        gpu.upload(&memory, 0, &[round; 64]);
        let mut back = [0u8; 64];
        gpu.download(&mut [(Operand::new(&memory, 0, 16), &mut back)])?;
        assert_eq!((back, gpu.allocated()), ([round; 64], 128));
    }
    Ok(())
}

#[test]
fn who_looks_again_and_again_sees_the_end() -> Result<()> {
    let (Some(_), Some(gpu)) = (gpu(), open_another(0)) else { return Ok(()) };
    let (from, to) = (Operand::allocate(&*gpu, "from", 1)?, Operand::allocate(&*gpu, "to", 1)?);
    let mut recorder = recorder(&gpu)?;
    add(&mut recorder, &from, &to, 2)?;
    run(&gpu, &Dispatch::all(&gpu, recorder.recorded, 0))?;
    let started = std::time::Instant::now();
    while !gpu.ends_soon(None)? {
        assert!(started.elapsed().as_secs() < 60, "the end was never seen");
    }
    assert_eq!(read(&gpu, &to)?, [2.5]);
    Ok(())
}

#[test]
fn kernels_are_timed_by_name() -> Result<()> {
    let (Some(_), Some(gpu)) = (gpu(), open_another(0)) else { return Ok(()) };
    if gpu.set_timing(Timing::Kernels).is_err() {
        return Ok(());
    }
    let (from, to) = (Operand::allocate(&*gpu, "from", 64)?, Operand::allocate(&*gpu, "to", 64)?);
    let mut recorder = recorder(&gpu)?;
    add(&mut recorder, &from, &to, 1)?;
    add(&mut recorder, &to, &from, 1)?;
    run(&gpu, &Dispatch::all(&gpu, recorder.recorded, 0))?;
    let times = gpu.kernel_times();
    assert_eq!((times.len(), times[0].label.as_str(), times[0].runs), (1, "add", 2));
    assert!(times[0].seconds > 0.0 && gpu.statistics().device_seconds >= times[0].seconds * 0.5);
    gpu.reset_statistics();
    assert!(gpu.kernel_times().is_empty());
    Ok(())
}

#[test]
fn templates_fill_in_text_and_keep_directives_first() {
    let template = Template::new("// A comment.\nenable f16;\nlet x = #{WHAT};\n")
        .constant("SIZE", 3usize)
        .flag("WIDE", true)
        .float("SMALL", 0.1)
        .float("ENDLESS", f64::INFINITY)
        .section("WHAT", 5);
    let kernel = Kernel::new("test", &template.text());
    let source = kernel.source();
    assert!(source.starts_with("enable f16;\n"), "{source}");
    for line in ["const SIZE: u32 = 3u;", "const WIDE: bool = true;", "let x = 5;"] {
        assert!(source.contains(line), "{source}");
    }
    // Numbers read back as they were; what is endless is the largest there is.
    let number = |name: &str| -> f32 {
        let line = source.lines().find(|line| line.contains(name)).expect("the constant");
        line.rsplit(" = ").next().expect("a value").trim_end_matches("f;").parse().expect("a number")
    };
    assert_eq!((number("SMALL"), number("ENDLESS")), (0.1, f32::MAX));
}
