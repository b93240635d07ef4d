// A vector divided by its length, by one workgroup.
var<workgroup> parts: array<f32, THREADS>;

fn main(group: u32, thread: u32) {
    var sum = 0.0;
    for (var i = thread; i < constants.elements; i += THREADS) {
        sum = fma(x[i], x[i], sum);
    }
    parts[thread] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            parts[thread] += parts[thread + half];
        }
        workgroupBarrier();
    }
    let length = sqrt(parts[0]);
    if thread == 0u {
        sizes[constants.place] = length;
    }
    let share = 1.0 / max(length, LEAST);
    for (var i = thread; i < constants.elements; i += THREADS) {
        x[i] *= share;
    }
}
