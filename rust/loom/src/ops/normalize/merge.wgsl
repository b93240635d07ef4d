// Mean and variance of each channel from those of its parts (Chan, Golub and LeVeque 1979): one thread a channel.
// (parts, channels)
@group(0) @binding(0) var<storage, read> means: array<f32>;
@group(0) @binding(1) var<storage, read> spreads: array<f32>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> variance: array<f32>;

struct Constants {
    step: u32,
    channels: u32,
    terms: u32,
    part: u32,
    parts: u32,
}
var<immediate> constants: Constants;

// Numbers of a part.
fn count_of(part: u32) -> f32 {
    return f32(min(constants.part, constants.terms - part * constants.part));
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let channel = group_index(group, groups) * THREADS + thread;
    if channel >= constants.channels {
        return;
    }
    let terms = f32(constants.terms);
    // Distances from the first part's mean round less than means would.
    let origin = means[channel];
    var centre = 0.0;
    for (var part = 1u; part < constants.parts; part += 1u) {
        centre += (means[part * constants.channels + channel] - origin) * (count_of(part) / terms);
    }
    centre += origin;
    var spread = 0.0;
    for (var part = 0u; part < constants.parts; part += 1u) {
        let distance = means[part * constants.channels + channel] - centre;
        spread += spreads[part * constants.channels + channel] + distance * distance * count_of(part);
    }
    mean[channel] = centre;
    variance[channel] = spread / terms;
}
