// Puts the axes of every row in another order: one thread an element of the result.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

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
    if (i >= constants.count) {
        return;
    }
    var rest = i;
    var place = 0u;
#{AXES}
    y[i] = x[place + rest * ROW];
}
