#{GENERATOR}

// Zeroes the elements of every group whose word is below the threshold and multiplies the others.
fn main(i: u32) {
    if (i >= constants.elements) {
        return;
    }
    let now = steps[constants.step];
    // The number of this element's group among all of the batch, in two words.
    let before = multiply(now.row_offset, constants.groups);
    let low = before.x + i / constants.shared_elements;
    let high = before.y + select(0u, 1u, low < before.x);
    let key = vec2<u32>(now.seed_low, now.seed_high);
    let block = low >> 2u | high << 30u;
    let words = philox(vec4<u32>(block, now.step_low, constants.path, now.step_high << 8u | USE), key);
    // Selected, not multiplied: a dropped infinity is a zero.
    y[i] = select(0.0, x[i] * constants.factor, words[low & 3u] >= constants.threshold);
}
