// The loss of each row of the batch: the sum over its positions, one workgroup a row.
@group(0) @binding(0) var<storage, read> position_losses: array<f32>;
@group(0) @binding(1) var<storage, read_write> losses: array<f32>;

struct Constants {
    step: u32,
    rows: u32,
    positions: u32,
}
var<immediate> constants: Constants;

#{JOIN}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(group, groups);
    var loss = 0.0;
    if row < constants.rows {
        for (var i = thread; i < constants.positions; i += THREADS) {
            loss += position_losses[row * constants.positions + i];
        }
    }
    loss = row_sum(thread, loss);
    if row < constants.rows && thread == 0u {
        losses[row] = loss;
    }
}
