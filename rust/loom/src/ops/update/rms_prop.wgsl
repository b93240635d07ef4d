struct Rule {
    rate: f32,
}

fn rule_of(rate: f32, updates: u32) -> Rule {
    return Rule(rate * RATE_FACTOR);
}

// a is the mean of squares; then come the mean, if centered, and the velocity, if there is momentum.
fn apply_rule(
    rule: Rule,
    decays: vec4<bool>,
    w: vec4<f32>,
    gradient_of_loss: vec4<f32>,
    moments: ptr<function, Moments>,
) -> vec4<f32> {
    let g = select(gradient_of_loss, fma(vec4<f32>(DECAY), w, gradient_of_loss), decays);
    let square = flush((*moments).a * ALPHA + g * g * NEWS);
    (*moments).a = square;
    var spread = square;
    if CENTERED {
        let mean = flush(fma(g - (*moments).b, vec4<f32>(NEWS), (*moments).b));
        (*moments).b = mean;
        // Rounding may leave a square below the mean's own.
        spread = max(square - mean * mean, vec4<f32>());
    }
    var change = g / (sqrt(spread + ROOTED) + EPSILON);
    if HAS_MOMENTUM {
        var velocity = (*moments).b;
        if CENTERED {
            velocity = (*moments).c;
        }
        velocity = flush(fma(vec4<f32>(MOMENTUM), velocity, change));
        if CENTERED {
            (*moments).c = velocity;
        } else {
            (*moments).b = velocity;
        }
        change = velocity;
    }
    return w - rule.rate * change;
}
