// Rows of activations as int8 codes, four to a word, with a scale for each 32 of them: a thread a word, eight a block.

#{DIVISION}

var<workgroup> largest: array<u32, THREADS>;

fn main(number: u32, thread: u32) {
    let at = number * THREADS + thread;
    let row = at / (constants.blocks * 8u);
    let word = at % (constants.blocks * 8u);
    let there = row < constants.rows;
    // Bits of magnitudes are ordered as the magnitudes are, infinity and NaN above all numbers.
    var values = vec4<u32>();
    if there {
        for (var i = 0u; i < 4u; i++) {
            let k = word * 4u + i;
            if k < constants.depth {
                values[i] = x[row * constants.depth + k];
            }
        }
    }
    let magnitudes = values & vec4<u32>(0x7fffffffu);
    largest[thread] = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    workgroupBarrier();
    if !there {
        return;
    }
    var most = 0u;
    for (var i = 0u; i < 8u; i++) {
        most = max(most, largest[thread / 8u * 8u + i]);
    }
    let finite = most < 0x7f800000u;
    var scale = 0x7fc00000u;
    if finite {
        // Divided by 127; 1 where nothing is left.
        scale = quotient_of(most, 0x42fe0000u);
        scale = select(scale, 0x3f800000u, scale == 0u);
    }
    if word % 8u == 0u {
        scales[row * constants.blocks + word / 8u] = scale;
    }
    if word < constants.words {
        var made = 0u;
        for (var i = 0u; i < 4u && finite; i++) {
            let code = integer_of(quotient_of(magnitudes[i], scale), 127u);
            made |= (select(code, 0u - code, values[i] >> 31u == 1u) & 255u) << (i * 8u);
        }
        codes[row * constants.words + word] = made;
    }
}
