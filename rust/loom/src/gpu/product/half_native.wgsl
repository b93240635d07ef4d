// The nearest number that binary16 has, by the device's own conversion. It goes by way of packed words: drivers
// take a conversion to f16 and straight back for none at all.
fn rounded4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(pack2x16float(x.xy)), unpack2x16float(pack2x16float(x.zw)));
}

fn rounded(x: f32) -> f32 {
    return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0))).x;
}
