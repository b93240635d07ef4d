// da = dy b f'(a) and db = dy f(a), four elements a thread.

#{FUNCTIONS}

fn main(i: u32) {
    if i < constants.units {
        let gate = a[i];
        let value = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
        let saved = #{SAVED};
        let slope =
            vec4<f32>(derivative(saved.x), derivative(saved.y), derivative(saved.z), derivative(saved.w));
        da[i] = dy[i] * b[i] * slope;
        db[i] = dy[i] * value;
    }
}
