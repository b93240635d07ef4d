// What an update would make of a part of a store, four weights a thread; leaves in `found` the worst of it.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> master: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> found: array<atomic<u32>>;
// Of each parameter its first weight, the one after its last, and the bits of the largest magnitude it holds.
@group(0) @binding(4) var<storage, read> parameters: array<u32>;
#{BINDINGS}

struct Constants {
    step: u32,
    // Units of four weights.
    units: u32,
    // The part's first weight.
    first: u32,
}
var<immediate> constants: Constants;

#{RULE}

fn is_odd(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u);
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.units {
        return;
    }
    #{DECIDE}
    let at = constants.first + 4u * i;
    var end = 0u;
    var most = 0u;
    for (var p = 0u; p < PARAMETERS; p += 1u) {
        if at >= parameters[3u * p] && at < parameters[3u * p + 1u] {
            end = parameters[3u * p + 1u];
            most = parameters[3u * p + 2u];
        }
    }
    // What lies between parameters is nobody's.
    var counts = vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end);
    #{FROZEN}
    if !any(counts) {
        return;
    }
    let now = steps[constants.step];
    let updates = (now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u;
    let rule = rule_of(#{BASE_RATE} * (#{RATE}), updates);
    var decays = vec4<bool>(true);
    #{EXEMPT}
    var moments: Moments;
    #{LOAD}
    let made = apply_rule(rule, decays, master[i], gradient[i], &moments);
    var wrong = 0u;
    let magnitude = bitcast<vec4<u32>>(made) & vec4<u32>(0x7fffffffu);
    if any(counts & (magnitude > vec4<u32>(most))) {
        wrong = 1u;
    }
    #{MOMENTS}
    if any(counts & is_odd(made)) {
        wrong = 3u;
    }
    if wrong != 0u {
        atomicMax(&found[0], wrong);
    }
}
