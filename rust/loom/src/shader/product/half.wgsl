// The nearest number that binary16 has, ties to even; infinity from 65,520 on; NaN stays NaN. On the bits
// alone: drivers' own conversions may round down, or flush what is too small for a normal number.
fn rounded4(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    let sign = bits & vec4<u32>(0x80000000u);
    let magnitude = bits & vec4<u32>(0x7fffffffu);
    let kept = (magnitude + vec4<u32>(0xfffu) + (magnitude >> vec4<u32>(13u) & vec4<u32>(1u)))
        & vec4<u32>(0xffffe000u);
    // Adding 0.5 puts the unit of binary16's subnormals, 2^-24, in the last place, and rounds.
    let units = bitcast<vec4<u32>>(bitcast<vec4<f32>>(magnitude) + vec4<f32>(0.5)) - vec4<u32>(0x3f000000u);
    let subnormal = bitcast<vec4<u32>>(vec4<f32>(units) * vec4<f32>(5.9604645e-8));
    let finite = select(kept, subnormal, magnitude < vec4<u32>(113u << 23u));
    let large = select(vec4<u32>(0x7f800000u), magnitude, magnitude > vec4<u32>(0x7f800000u));
    return bitcast<vec4<f32>>(sign | select(finite, large, finite >= vec4<u32>(143u << 23u)));
}

fn rounded(x: f32) -> f32 {
    return rounded4(vec4<f32>(x)).x;
}
