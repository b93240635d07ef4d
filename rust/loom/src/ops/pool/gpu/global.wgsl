// The mean of a whole plane: a workgroup for each, whose threads' sums are joined as a tree.

var<workgroup> sums: array<f32, THREADS>;

fn main(plane: u32, thread: u32) {
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
