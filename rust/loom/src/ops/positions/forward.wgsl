// Adds to each step the row of its place: a thread an element.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    time: u32,
    width: u32,
    places: u32,
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
    if i < constants.elements {
        let place = min(#{POSITION} + i / constants.width % constants.time, constants.places - 1u);
        y[i] = x[i] + table[place * constants.width + i % constants.width];
    }
}
