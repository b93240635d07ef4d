// z = x + bias[channel], in units of one element or of four that lie side by side.
@group(0) @binding(0) var<storage, read> x: array<#{UNIT}>;
@group(0) @binding(1) var<storage, read> bias: array<#{BIAS}>;
@group(0) @binding(2) var<storage, read_write> z: array<#{UNIT}>;

struct Constants {
    step: u32,
    units: u32,
    // Units of bias.
    channels: u32,
    // Units of x that share one unit of bias.
    inner: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.units {
        z[i] = x[i] + #{UNIT}(bias[i / constants.inner % constants.channels]);
    }
}
