// Which of the four weights from `at` on are looked at, and the bits of the largest magnitude they may have.
struct Held {
    counts: vec4<bool>,
    most: u32,
}

fn held_at(at: u32) -> Held {
    var end = 0u;
    var most = 0u;
    for (var p = 0u; p < PARAMETERS; p += 1u) {
        if at >= parameters[3u * p] && at < parameters[3u * p + 1u] {
            end = parameters[3u * p + 1u];
            most = parameters[3u * p + 2u];
        }
    }
    // What lies between parameters is nobody's.
    return Held(vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end), most);
}

fn is_odd(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u);
}

// Leaves in `found` the worst of what the update would make.
fn look(held: Held, made: vec4<f32>, moments: Moments) {
    var wrong = 0u;
    let magnitude = bitcast<vec4<u32>>(made) & vec4<u32>(0x7fffffffu);
    if any(held.counts & (magnitude > vec4<u32>(held.most))) {
        wrong = 1u;
    }
    if any(held.counts & (is_odd(moments.a) | is_odd(moments.b) | is_odd(moments.c))) {
        wrong = 2u;
    }
    if any(held.counts & is_odd(made)) {
        wrong = 3u;
    }
    if wrong != 0u {
        atomicMax(&found[0], wrong);
    }
}
