// 1 at each position's class and 0 elsewhere, one element a thread.
@group(0) @binding(0) var<storage, read> labels: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    classes: u32,
    inner: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.elements {
        return;
    }
    let position = i % constants.inner;
    let class_number = i / constants.inner % constants.classes;
    let block = i / (constants.inner * constants.classes);
    let label = labels[block * constants.inner + position];
    y[i] = select(0.0, 1.0, label == i32(class_number));
}
