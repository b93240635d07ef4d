// The sum of the sums of rows, divided by the square of the singular value, by one workgroup.
var<workgroup> parts: array<f32, THREADS>;

fn main(group: u32, thread: u32) {
    var sum = 0.0;
    for (var i = thread; i < constants.rows; i += THREADS) {
        sum += working[constants.rows + i];
    }
    parts[thread] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            parts[thread] += parts[thread + half];
        }
        workgroupBarrier();
    }
    if thread == 0u {
        let share = 1.0 / max(sizes[0], LEAST);
        factor[0] = parts[0] * share * share;
    }
}
