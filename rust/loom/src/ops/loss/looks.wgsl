
// (1 - p)^GAMMA, and how much a logit's share of the loss's slope is of what it is of cross-entropy's.
fn looks(cost: f32) -> vec2<f32> {
    let p = exp(-cost);
    let other = select(max(1.0 - p, 0.0), p, is_nan(p));
    let nothing = other == 0.0;
    // The logarithm of zero is not taken, and of what is certain the two go to zero together.
    let look = select(exp(log(select(other, 1.0, nothing)) * GAMMA), 0.0, nothing);
    let ratio = select(cost / select(other, 1.0, nothing), 1.0, nothing);
    return vec2<f32>(look, look * (1.0 + GAMMA * p * ratio));
}
