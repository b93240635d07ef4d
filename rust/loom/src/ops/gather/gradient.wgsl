// What each row of a table gathers, in the order in which its number occurs: a workgroup some columns
// of one row, which looks at THREADS numbers at a time.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<f32>;

struct Constants {
    step: u32,
    // Numbers in the whole batch.
    count: u32,
    width: u32,
    // Workgroups that share one row, and all there are.
    across: u32,
    groups: u32,
}
var<immediate> constants: Constants;

var<workgroup> numbers: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group_index(group, groups);
    if number >= constants.groups {
        return;
    }
    let row = number / constants.across;
    let column = number % constants.across * THREADS + thread;
    let present = column < constants.width;
    let at = row * constants.width + column;
    var sum = 0.0;
    if present {
        sum = #{START};
    }
    for (var base = 0u; base < constants.count; base += THREADS) {
        workgroupBarrier();
        if base + thread < constants.count {
            numbers[thread] = min(u32(max(x[base + thread], 0.0)), VOCABULARY - 1u);
        }
        workgroupBarrier();
        if present {
            for (var i = 0u; i < min(THREADS, constants.count - base); i += 1u) {
                if numbers[i] == row {
                    sum += dy[(base + i) * constants.width + column];
                }
            }
        }
    }
    if present {
        gradient[at] = sum;
    }
}
