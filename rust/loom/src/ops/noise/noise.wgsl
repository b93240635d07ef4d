// Cosine and sine of whole turns below 1. Drivers' own are only good to 2^-11.
fn circle(turns: f32) -> vec2<f32> {
    let part = turns - round(turns);
    let quarters = round(part * 4.0);
    let rest = fma(quarters, -0.25, part);
    let square = rest * rest;
    var s = fma(-75.4456558, square, 81.5937653);
    s = fma(s, square, -41.341671);
    s = fma(s, square, -1.74845553e-07);
    s = fma(rest, 6.28318548, s * rest);
    var c = fma(59.3497009, square, -85.4471436);
    c = fma(c, square, 64.9393616);
    c = fma(c, square, -19.7392082);
    c = fma(c, square, 1.0);
    // Which quarter of the circle the rest is counted from.
    if quarters == 1.0 {
        return vec2<f32>(-s, c);
    }
    if quarters == -1.0 {
        return vec2<f32>(s, -c);
    }
    return select(vec2<f32>(c, s), vec2<f32>(-c, -s), abs(quarters) == 2.0);
}

// Two normal numbers from two words.
fn normal_pair(words: vec2<u32>) -> vec2<f32> {
    let u = f32((words.x >> 9u) * 2u + 1u) * 5.9604645e-8;
    // Drivers' logarithms are only good to an absolute error near 1.
    let depth = -select(log(u), loom_ln_1p(u - 1.0), u >= 0.5);
    let radius = sqrt(2.0 * depth) * constants.scale;
    return radius * circle(f32(words.y >> 8u) * 5.9604645e-8);
}
