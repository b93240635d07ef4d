// The sum of the magnitudes of each row of a matrix: one workgroup a row.

var<workgroup> cells: array<f32, THREADS>;

fn main(row: u32, thread: u32) {
    if row >= constants.rows {
        return;
    }
    var sum = 0.0;
    for (var column = thread; column < constants.columns; column += THREADS) {
        sum += abs(weight[row * constants.columns + column]);
    }
    cells[thread] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            cells[thread] += cells[thread + half];
        }
        workgroupBarrier();
    }
    if thread == 0u {
        sums[row] = cells[0];
    }
}
