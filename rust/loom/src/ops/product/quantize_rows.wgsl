// Rows of activations as int8 codes, four to a word, with a scale each: a workgroup a row.

#{DIVISION}

var<workgroup> largest: array<u32, THREADS>;

fn main(row: u32, thread: u32) {
    let there = row < constants.rows;
    // Bits of magnitudes are ordered as the magnitudes are, infinity and NaN above all numbers.
    var found = 0u;
    if there {
        for (var k = thread; k < constants.depth; k += THREADS) {
            found = max(found, x[row * constants.depth + k] & 0x7fffffffu);
        }
    }
    largest[thread] = found;
    workgroupBarrier();
    for (var half = THREADS / 2u; half >= 1u; half /= 2u) {
        if thread < half {
            largest[thread] = max(largest[thread], largest[thread + half]);
        }
        workgroupBarrier();
    }
    if !there {
        return;
    }
    let most = largest[0];
    let finite = most < 0x7f800000u;
    var scale = 0x7fc00000u;
    if finite {
        // Divided by 127; 1 where nothing is left.
        scale = quotient_of(most, 0x42fe0000u);
        scale = select(scale, 0x3f800000u, scale == 0u);
    }
    if thread == 0u {
        scales[row] = scale;
    }
    for (var word = thread; word < constants.words; word += THREADS) {
        var made = 0u;
        let end = min(word * 4u + 4u, constants.depth);
        for (var k = word * 4u; k < end && finite; k++) {
            let bits = x[row * constants.depth + k];
            let code = integer_of(quotient_of(bits & 0x7fffffffu, scale), 127u);
            made |= (select(code, 0u - code, bits >> 31u == 1u) & 255u) << (k % 4u * 8u);
        }
        codes[row * constants.words + word] = made;
    }
}
