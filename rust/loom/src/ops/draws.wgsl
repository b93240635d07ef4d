// Random words for every element, the same however batches are cut. One thread draws one block of four words,
// those of four elements side by side.

#{GENERATOR}
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
