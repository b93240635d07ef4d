// The sum of dy over the rows of the batch, for each place that the sequence reaches: a thread an element.
@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read_write> gradient: array<f32>;

struct Constants {
    step: u32,
    time: u32,
    width: u32,
    rows: u32,
    // Of the table.
    elements: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.elements {
        return;
    }
    let reached = constants.time * constants.width;
    var sum = 0.0;
    if i < reached {
        for (var row = 0u; row < constants.rows; row += 1u) {
            sum += dy[row * reached + i];
        }
    }
    gradient[i] = #{START} + sum;
}
