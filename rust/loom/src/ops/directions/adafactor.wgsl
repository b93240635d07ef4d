// What is new of squares goes into their means by this share.

// By bits, so that a NaN stays.
fn flush(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & 0x7f800000u) == 0u);
}

fn averaged(before: f32, found: f32) -> f32 {
    let now = steps[constants.step];
    let updates = (now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u;
    let news = exp2(-DECAY_POWER * log2(f32(updates)));
    return flush(before * (1.0 - news) + found * news);
}

