// One step of the optimizer over a part of a store, four weights a thread: made, or only looked at. What
// lies beyond the last weight in its unit of four is nobody's.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> gradient: array<vec4<f32>>;
@group(0) @binding(2) var<storage, #{ACCESS}> master: array<vec4<f32>>;
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

#{FUNCTIONS}

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
    let now = steps[constants.step];
    let updates = (now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u;
    let rule = rule_of(#{BASE_RATE} * (#{RATE}), updates);
    var decays = vec4<bool>(true);
    #{EXEMPT}
    var moments: Moments;
    #{LOAD}
    #{BEFORE}
    let made = apply_rule(rule, decays, master[i], gradient[i], &moments);
    #{FINISH}
}
