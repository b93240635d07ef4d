// The sum of the magnitudes of each row of a matrix: one workgroup a row.
@group(0) @binding(0) var<storage, read> weight: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

struct Constants {
    step: u32,
    rows: u32,
    columns: u32,
}
var<immediate> constants: Constants;

var<workgroup> cells: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(group, groups);
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
