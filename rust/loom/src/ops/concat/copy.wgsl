// Copies a stretch of every repetition of one value into every repetition of another.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
#{CONTROL}

struct Constants {
    step: u32,
    // Elements that are copied in all, and in each repetition.
    count: u32,
    length: u32,
    // Where each repetition starts, and where the stretch starts in it, of x and of y.
    x_stride: u32,
    x_start: u32,
    y_stride: u32,
    y_start: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if (i >= constants.count) {
        return;
    }
    #{GUARD}
    let repetition = i / constants.length;
    let place = i % constants.length;
    y[repetition * constants.y_stride + constants.y_start + place] =
        x[repetition * constants.x_stride + constants.x_start + place];
}
