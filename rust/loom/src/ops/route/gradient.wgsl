// The gradient of the logits from that of the chosen shares: a thread a step.
fn chosen(step: u32, place: u32) -> u32 {
    return u32(choices[step * TOP_K + place]);
}

fn share(step: u32, expert: u32, largest: f32, total: f32) -> f32 {
    return exp(logits[step * EXPERTS + expert] - largest) / total;
}

fn main(step: u32) {
    if step >= constants.steps {
        return;
    }
    let start = step * EXPERTS;
    let largest = logits[start + chosen(step, 0u)];
    var sum = 0.0;
    #{COUNTED}
    let total = sum;
    var mean = 0.0;
    for (var place = 0u; place < TOP_K; place += 1u) {
        mean = fma(share(step, chosen(step, place), largest, total), dgates[step * TOP_K + place], mean);
    }
    for (var i = 0u; i < EXPERTS; i += 1u) {
        dlogits[start + i] = #{OTHERS};
    }
    for (var place = 0u; place < TOP_K; place += 1u) {
        let expert = chosen(step, place);
        dlogits[start + expert] = share(step, expert, largest, total) * (dgates[step * TOP_K + place] - mean);
    }
}
