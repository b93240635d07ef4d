// Outputs times a factor each.
fn inverse(x: f32) -> f32 {
    return select(0.0, 1.0 / x, x > 0.0);
}

fn main(i: u32) {
    if i < constants.elements {
        let n = i % constants.outputs;
        y[i] = #{VALUE};
    }
}
