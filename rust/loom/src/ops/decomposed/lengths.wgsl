// The lengths of columns: neighbouring threads have neighbouring columns, the others further rows of these.
const SHARES: u32 = THREADS / TOGETHER;
var<workgroup> parts: array<f32, THREADS>;

fn main(group: u32, thread: u32) {
    let n = group * TOGETHER + thread % TOGETHER;
    var squares = 0.0;
    if n < constants.outputs {
        for (var k = thread / TOGETHER; k < constants.inputs; k += SHARES) {
            var sum = 0.0;
            for (var r = 0u; r < constants.rank; r += 1u) {
                sum = fma(a[k * constants.rank + r], b[r * constants.outputs + n], sum);
            }
            sum = fma(constants.scale, sum, w[k * constants.outputs + n]);
            squares = fma(sum, sum, squares);
        }
    }
    parts[thread] = squares;
    workgroupBarrier();
    for (var half = SHARES / 2u; half > 0u; half /= 2u) {
        if thread < half * TOGETHER {
            parts[thread] += parts[thread + half * TOGETHER];
        }
        workgroupBarrier();
    }
    if thread < TOGETHER && n < constants.outputs {
        lengths[n] = sqrt(parts[thread]);
    }
}
