// dx = dy f', from what the function has saved: its input or its output. In units of four; what lies
// beyond the last element in its unit is nobody's.

#{FUNCTION}

fn main(i: u32) {
    if i < constants.units {
        let v = saved[i];
        dx[i] = dy[i] * vec4<f32>(derivative(v.x), derivative(v.y), derivative(v.z), derivative(v.w));
    }
}
