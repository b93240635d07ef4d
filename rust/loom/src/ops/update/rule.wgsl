// An optimizer's rule, four weights at a time.

// What a rule is written in of a step.
struct Scalars {
    a: f32,
    b: f32,
    c: f32,
    d: f32,
}

// A weight and its moments.
struct Made {
    w: f32,
    a: f32,
    b: f32,
    c: f32,
}

struct Moments {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
}

// By bits, so that a NaN stays.
fn flush(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & 0x7f800000u) == 0u);
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

#{FUNCTIONS}

// A step for weights that decay, and for those that do not.
struct Rule {
    decaying: Scalars,
    exempt: Scalars,
}

fn rule_of(rate: f32, updates: u32) -> Rule {
    let actual = rate * RATE_FACTOR;
    let number = f32(updates);
    return Rule(scalars_of(actual, DECAY, number), scalars_of(actual, 0.0, number));
}

fn scalars_for(rule: Rule, decays: bool) -> Scalars {
    if decays {
        return rule.decaying;
    }
    return rule.exempt;
}

fn apply_rule(
    rule: Rule,
    decays: vec4<bool>,
    w: vec4<f32>,
    g: vec4<f32>,
    moments: ptr<function, Moments>,
) -> vec4<f32> {
    let m = *moments;
    let first = update_of(scalars_for(rule, decays.x), w.x, g.x, m.a.x, m.b.x, m.c.x);
    let second = update_of(scalars_for(rule, decays.y), w.y, g.y, m.a.y, m.b.y, m.c.y);
    let third = update_of(scalars_for(rule, decays.z), w.z, g.z, m.a.z, m.b.z, m.c.z);
    let fourth = update_of(scalars_for(rule, decays.w), w.w, g.w, m.a.w, m.b.w, m.c.w);
    (*moments).a = vec4<f32>(first.a, second.a, third.a, fourth.a);
    (*moments).b = vec4<f32>(first.b, second.b, third.b, fourth.b);
    (*moments).c = vec4<f32>(first.c, second.c, third.c, fourth.c);
    return vec4<f32>(first.w, second.w, third.w, fourth.w);
}
