// Copies the rows of a batch out of a whole data set, in the order the epoch passes them.
@group(0) @binding(0) var<storage, read> order: array<u32>;
@group(0) @binding(1) var<storage, read> data: array<#{TYPE}>;
@group(0) @binding(2) var<storage, read_write> batch: array<#{TYPE}>;

struct Constants {
    step: u32,
    rows: u32,
    // Elements of a row, in units of the type above.
    width: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let element = group_index(group, groups) * THREADS + thread;
    let row = element / constants.width;
    if row < constants.rows {
        let source = order[steps[constants.step].first_row + row];
        batch[element] = data[source * constants.width + element % constants.width];
    }
}
