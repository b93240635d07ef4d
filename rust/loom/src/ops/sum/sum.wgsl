// y = x0 + x1 + ..., from left to right, in units of four elements; what lies beyond the last element in
// its unit is nobody's.
#{OPERANDS}

struct Constants {
    step: u32,
    units: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.units {
        y[i] = #{SUM};
    }
}
