// The product of each branch with its row's gradient: one workgroup a branch of a row.

var<workgroup> sums: array<f32, THREADS>;

fn main(branch: u32, thread: u32) {
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
