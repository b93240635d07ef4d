// y = f(x), element by element, in units of four; what lies beyond the last element in its unit is
// nobody's.

#{FUNCTION}

fn main(i: u32) {
    if i < constants.units {
        let v = x[i];
        y[i] = vec4<f32>(activate(v.x), activate(v.y), activate(v.z), activate(v.w));
    }
}
