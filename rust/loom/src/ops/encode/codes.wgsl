// Encodes a parameter with the scales that were found, a word of codes a thread.

#{DIVISION}

// The code of a weight, in the lowest bits.
fn code_of(bits: u32, scale: u32, zero: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    let negative = bits >> 31u == 1u;
    #{CODE}
}

fn main(word: u32) {
    let first = word * (32u / BITS);
    if first >= constants.elements || control.applies == 0u && control.goes_back == 0u {
        return;
    }
    let end = min(first + 32u / BITS, constants.elements);
    var made = 0u;
    for (var i = first; i < end; i++) {
        let at = (i / constants.columns / constants.block * constants.columns + i % constants.columns) * WORDS;
        // Where there is no zero point, the word is not used.
        let code = code_of(master[i], scales[at], scales[at + WORDS - 1u]);
        made |= (code & ((1u << BITS) - 1u)) << ((i - first) * BITS);
    }
    codes[word] = made;
}
