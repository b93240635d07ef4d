// The product of each branch with its row's gradient: one workgroup a branch of a row.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gradient: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    count: u32,
    branches: u32,
    len: u32,
}
var<immediate> constants: Constants;

var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let branch = group_index(group, groups);
    if (branch >= constants.count) {
        return;
    }
    let len = constants.len;
    let row = branch / constants.branches;
    var sum = 0.0;
    for (var i = thread; i < len; i += THREADS) {
        sum = fma(x[branch * len + i], gradient[row * len + i], sum);
    }
    sums[thread] = sum;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            sums[thread] += sums[thread + half];
        }
    }
    if (thread == 0u) {
        y[branch] = sums[0];
    }
}
