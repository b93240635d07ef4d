// What a running average would become; see running.wgsl.
@group(0) @binding(0) var<storage, read> value: array<f32>;
@group(0) @binding(1) var<storage, read> running: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: array<atomic<u32>>;

struct Constants {
    step: u32,
    elements: u32,
    // Bits of numbers.
    kept: u32,
    share: u32,
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
    let made = bitcast<f32>(constants.kept) * running[i] + bitcast<f32>(constants.share) * value[i];
    if !is_finite(made) {
        atomicMax(&found[0], 3u);
    }
}
