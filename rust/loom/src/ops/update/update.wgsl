// One step of the optimizer over a part of a store, four weights a thread: made, or only looked at. What
// lies beyond the last weight in its unit of four is nobody's.

#{RULE}
#{RATIOS}

#{FUNCTIONS}

fn main(i: u32) {
    if i >= constants.units {
        return;
    }
    #{DECIDE}
    let now = steps[constants.step];
    let updates = (now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u;
    let rule = rule_of(#{BASE_RATE} * (#{RATE})#{RATIO}, updates);
    var decays = vec4<bool>(true);
    #{EXEMPT}
    var moments: Moments;
    #{LOAD}
    #{BEFORE}
    let made = apply_rule(rule, decays, master[i], gradient[i], &moments);
    #{FINISH}
}
