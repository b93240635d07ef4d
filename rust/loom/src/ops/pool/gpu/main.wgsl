
struct Constants {
    step: u32,
    // Elements of the result.
    elements: u32,
}
var<immediate> constants: Constants;

// A thread makes WIDTH neighbouring elements: they share what their windows cover, and are stored together.
@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = (group_index(id, count) * THREADS + thread) * WIDTH;
    if (first < constants.elements) {
        make(first);
    }
}

// Makes and stores the elements from `first` on.
fn make(first: u32) {
#{MAKE}
}
