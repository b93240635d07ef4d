// Numbers of 16 bits as floats, four a thread.

#{CODE}

fn main(i: u32) {
    if 4u * i >= constants.elements {
        return;
    }
    y[i] = vec4<f32>(both(words[i].x), both(words[i].y));
}
