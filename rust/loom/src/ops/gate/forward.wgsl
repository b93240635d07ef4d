// y = f(a) b, four elements a thread.

#{FUNCTIONS}

fn main(i: u32) {
    if i < constants.units {
        let gate = a[i];
        y[i] = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w)) * b[i];
    }
}
