struct Rule {
    // The rate over the correction of the mean.
    step_size: f32,
    // One over the root of the correction of the square.
    root_scale: f32,
    // What is left of a weight that decays by itself.
    shrink: f32,
}

// exp(x) - 1 for x of at most 0, within an ulp or two: drivers' own exp may be off by many, and all
// weights would be. x = n ln 2 + r, and a polynomial of r.
fn precise_exp_m1(x: f32) -> f32 {
    let bounded = max(x, -80.0);
    let n = round(bounded * 1.44269504);
    let r = fma(n, 2.12194440e-4, fma(n, -0.693359375, bounded));
    var p = fma(1.9875691500e-4, r, 1.3981999507e-3);
    p = fma(p, r, 8.3334519073e-3);
    p = fma(p, r, 4.1665795894e-2);
    p = fma(p, r, 1.6666665459e-1);
    p = fma(p, r, 5.0000001201e-1);
    let power = bitcast<f32>(u32(i32(n) + 127) << 23u);
    return fma(fma(p, r * r, r), power, power - 1.0);
}

fn rule_of(rate: f32, updates: u32) -> Rule {
    let t = f32(updates);
    let actual = rate * RATE_FACTOR;
    // 1 - beta^t, which loses no digits where beta^t is near 1.
    let mean_correction = -precise_exp_m1(t * LN_BETA1);
    let square_correction = -precise_exp_m1(t * LN_BETA2);
    return Rule(actual / mean_correction, 1.0 / sqrt(square_correction), 1.0 - actual * DECOUPLED_DECAY);
}

// a is the mean of gradients, b that of their squares.
fn apply_rule(
    rule: Rule,
    decays: vec4<bool>,
    weight: vec4<f32>,
    gradient_of_loss: vec4<f32>,
    moments: ptr<function, Moments>,
) -> vec4<f32> {
    let w = select(weight, weight * rule.shrink, decays);
    let g = select(gradient_of_loss, fma(vec4<f32>(DECAY), w, gradient_of_loss), decays);
    let mean = flush(fma(g - (*moments).a, vec4<f32>(MEAN_NEWS), (*moments).a));
    let square = flush((*moments).b * BETA2 + g * g * SQUARE_NEWS);
    (*moments).a = mean;
    (*moments).b = square;
    let denominator = fma(sqrt(square), vec4<f32>(rule.root_scale), vec4<f32>(EPSILON));
    return w - rule.step_size * (mean / denominator);
}
