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
    g: vec4<f32>,
    moments: ptr<function, Moments>,
) -> vec4<f32> {
    let v = flush(MOMENTUM * (*moments).a - rule.rate * g);
    (*moments).a = v;
    return w + v;
}
