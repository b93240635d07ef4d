// Random words for every element, the same however batches are cut. One thread draws one block of four words,
// those of four elements side by side.

// The product in full: low and high word.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let left = (a >> 16u) * (b & 0xffffu);
    let right = (a & 0xffffu) * (b >> 16u);
    // None of these sums carries past 32 bits.
    let middle = left + (low >> 16u);
    let rest = (middle & 0xffffu) + right;
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (rest >> 16u));
}

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011).
fn philox(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var counter = start;
    var key = seed;
    for (var round = 0u; round < 10u; round += 1u) {
        let first = multiply(0xd2511f53u, counter.x);
        let second = multiply(0xcd9e8d57u, counter.z);
        counter = vec4<u32>(second.y ^ counter.y ^ key.x, second.x, first.y ^ counter.w ^ key.y, first.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}

#{FUNCTIONS}

fn main(index: u32) {
    let now = steps[constants.step];
    // The number of this run's first word: blocks are counted from there.
    let before = multiply(now.row_offset, constants.features);
    let skip = before.x & 3u;
    if index >= (constants.elements + skip + 3u) / 4u {
        return;
    }
    let block = (before.x >> 2u | before.y << 30u) + index;
    let key = vec2<u32>(now.seed_low, now.seed_high);
    let words = philox(vec4<u32>(block, now.step_low, constants.path, now.step_high << 8u | USE), key);
    #{DRAWN}
    for (var word = 0u; word < 4u; word += 1u) {
        let i = index * 4u + word - skip;
        // Before the first element this is a large number.
        if i < constants.elements {
            #{STORE}
        }
    }
}
