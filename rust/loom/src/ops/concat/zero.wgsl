// Fills with zeros what no operand will cover.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;

struct Constants {
    step: u32,
    count: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if (i < constants.count) {
        y[i] = 0u;
    }
}
