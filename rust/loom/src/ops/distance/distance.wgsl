// Squared distances to centroids, or a gradient of them: one thread a result.
#{BINDINGS}

struct Constants {
    step: u32,
    results: u32,
    features: u32,
    // How many centroids.
    count: u32,
    points: u32,
    // Points whose gradients are added up together.
    part: u32,
    accumulate: u32,
    // The bits of what squared distances are multiplied by.
    factor: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.results {
        return;
    }
    let features = constants.features;
    let count = constants.count;
    let factor = bitcast<f32>(constants.factor);
    var sum = 0.0;
    #{BODY}
}
