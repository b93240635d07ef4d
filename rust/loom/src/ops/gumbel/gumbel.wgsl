// Gumbel noise from a word.
fn noise_of(word: u32) -> f32 {
    let u = f32((word >> 9u) * 2u + 1u) * 5.9604645e-8;
    // Drivers' logarithms are only good to an absolute error near 1.
    let depth = -select(log(u), loom_ln_1p(u - 1.0), u >= 0.5);
    return -log(depth);
}
