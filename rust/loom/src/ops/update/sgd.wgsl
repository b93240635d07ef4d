struct Rule {
    rate: f32,
}

fn rule_of(rate: f32, updates: u32) -> Rule {
    return Rule(rate * RATE_FACTOR);
}

// a is the velocity.
fn apply_rule(
    rule: Rule,
    decays: vec4<bool>,
    w: vec4<f32>,
    gradient_of_loss: vec4<f32>,
    moments: ptr<function, Moments>,
) -> vec4<f32> {
    let g = select(gradient_of_loss, fma(vec4<f32>(DECAY), w, gradient_of_loss), decays);
    let v = flush(fma(vec4<f32>(MOMENTUM), (*moments).a, g));
    (*moments).a = v;
    var change = v;
    if NESTEROV {
        change = fma(vec4<f32>(MOMENTUM), v, g);
    }
    return w - rule.rate * change;
}
