// The mean of a whole plane: a workgroup for each, whose threads' sums are joined as a tree.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    planes: u32,
}
var<immediate> constants: Constants;
var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let plane = group_index(id, count);
    if (plane >= constants.planes) {
        return;
    }
    var sum = 0.0;
    for (var i = thread; i < INPUTS; i += THREADS) {
        sum += x[plane * INPUTS + i];
    }
    sums[thread] = sum;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            sums[thread] += sums[thread + half];
        }
    }
    if (thread == 0u) {
        y[plane] = sums[0] / f32(INPUTS);
    }
}
