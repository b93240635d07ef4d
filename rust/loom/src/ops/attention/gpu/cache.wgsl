// Writes a call's steps behind those of earlier calls: a thread an element.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> cache: array<f32>;

struct Constants {
    step: u32,
    time: u32,
    capacity: u32,
    // Of one step.
    features: u32,
    elements: u32,
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
    let place = i / constants.features % constants.time + steps[constants.step].position;
    let row = i / constants.features / constants.time;
    if place < constants.capacity {
        cache[(row * constants.capacity + place) * constants.features + i % constants.features] = x[i];
    }
}
