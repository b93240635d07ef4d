// The norm, and what brings it down to the limit; of gradients of a scaled loss, what also divides them
// by the scale, a power of two.
fn main() {
    let norm = sqrt(total[0]) / #{SCALE};
    let limit = steps[constants.step].max_norm;
    result[0] = norm;
    // A norm that is not finite scales nothing: the step is refused, its gradients left to look at.
    result[1] = select(1.0, limit / norm, is_finite(norm) && norm > limit) / #{SCALE};
}
