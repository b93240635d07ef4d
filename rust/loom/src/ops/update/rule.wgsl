// Zero instead of what is too small for a normal number; by bits, so that a NaN stays.
fn flush(x: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(), (bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) == vec4<u32>());
}

struct Moments {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
}
