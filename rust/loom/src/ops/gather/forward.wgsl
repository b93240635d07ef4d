// Rows of a table by their numbers: a thread an element.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<#{ELEMENT}>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
#{SCALES}

struct Constants {
    step: u32,
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
    // Numbers are whole, and checked before they get here; the cast saturates.
    let row = min(u32(max(x[i / WIDTH], 0.0)), VOCABULARY - 1u);
    let at = row * WIDTH + i % WIDTH;
    y[i] = #{VALUE};
}
