// An expression, element by element; the values have names in the order of the graph.

// The angle less the nearest number of quarter turns, and that number.
fn loom_quarters(x: f32) -> vec2<f32> {
    let quarters = round(x * 0.63661975);
    let rest = fma(quarters, -1.5707855, x);
    return vec2<f32>(fma(quarters, -1.0804334e-5, rest), quarters);
}

fn loom_sin_cos(x: f32, ahead: i32) -> f32 {
    let reduced = loom_quarters(x);
    let r = reduced.x;
    let s = r * r;
    let sine = r + r * s * (-0.16666667 + s * (0.008333334 + s * (-0.0001984127 + s * 0.0000027557319)));
    let cosine = 1.0 + s * (-0.5 + s * (0.041666668 + s * (-0.0013888889 + s * (0.000024801587 + s * -2.7557319e-7))));
    let quarter = (i32(reduced.y) + ahead) & 3;
    let value = select(sine, cosine, (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

// loom_ln_1p is for what is not negative.
fn loom_ln_1p_all(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let q = s * s;
    let series = 1.0 + q * (0.33333334 + q * (0.2 + q * (0.14285715 + q * (0.11111111 + q * (0.09090909 + q * 0.07692308)))));
    return select(log(1.0 + x), 2.0 * s * series, abs(x) < 0.5);
}

fn loom_power(x: f32, exponent: f32) -> f32 {
    let power = exp(exponent * log(x));
    let at_zero = select(0.0, 1.0 / abs(x), exponent < 0.0);
    return select(select(power, at_zero, x == 0.0), 1.0, exponent == 0.0);
}

fn loom_is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn loom_max(a: f32, b: f32) -> f32 {
    return select(max(a, b), a + b, loom_is_nan(a) || loom_is_nan(b));
}

fn loom_min(a: f32, b: f32) -> f32 {
    return select(min(a, b), a + b, loom_is_nan(a) || loom_is_nan(b));
}

#{FUNCTIONS}

fn main(i: u32) {
    if i < constants.elements {
#{BODY}
    }
}
