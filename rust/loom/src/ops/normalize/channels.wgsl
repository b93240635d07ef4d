// Normalises by each channel's statistics, or the gradient of doing so: one thread an element.
#{BINDINGS}

struct Constants {
    step: u32,
    elements: u32,
    channels: u32,
    // Neighbouring elements of one channel.
    inner: u32,
    // The bits of how many numbers a channel has.
    count: u32,
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
    let count = bitcast<f32>(constants.count);
    let channel = i / constants.inner % constants.channels;
    let inverse = 1.0 / sqrt(variance[channel] + EPSILON);
    let factor = #{FACTOR};
    result[i] = #{RESULT};
}
