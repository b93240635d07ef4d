// Symmetric int8 with the CPU's scales and codes, in integers alone: drivers' divisions need not round
// as IEEE 754 does, and may flush what is too small for a normal number.

// A number other than 0 is mantissa x 2^(exponent - 150), its mantissa from 2^23 up to 2^24.
struct Parts {
    mantissa: u32,
    exponent: i32,
}

fn parts_of(magnitude: u32) -> Parts {
    if magnitude >= 1u << 23u {
        return Parts(magnitude & 0x7fffffu | 0x800000u, i32(magnitude >> 23u));
    }
    let shift = countLeadingZeros(magnitude) - 8u;
    return Parts(magnitude << shift, 1i - i32(shift));
}

// The scale of a channel of this largest magnitude: a 127th of it, rounded once.
fn scale_of(magnitude: u32) -> u32 {
    if magnitude == 0u {
        return 0x3f800000u;
    }
    let largest = parts_of(magnitude);
    // 25 or 26 bits, and what is lost.
    let quotient = (largest.mantissa << 8u) / 127u;
    let lost = (largest.mantissa << 8u) % 127u;
    var dropped = select(1, 2, quotient >= 1u << 25u);
    var exponent = largest.exponent - 8 + dropped;
    if exponent < 1 {
        // Below the normal numbers there are fewer bits.
        dropped += 1 - exponent;
        exponent = 1;
    }
    var mantissa = quotient >> u32(dropped);
    let rest = quotient & ((1u << u32(dropped)) - 1u);
    let half = 1u << u32(dropped - 1);
    if rest > half || (rest == half && (lost != 0u || (mantissa & 1u) == 1u)) {
        mantissa += 1u;
    }
    // The leading bit of a normal mantissa counts as one exponent more.
    let bits = (u32(exponent - 1) << 23u) + mantissa;
    // Not below the normal numbers, and not so large that the largest code would decode to infinity.
    return clamp(bits, 0x00800000u, LARGEST_SCALE);
}

// The code of a weight, in the lowest eight bits: its quotient by the scale rounded to a float, and then
// to an integer, half to even.
fn code(bits: u32, scale_bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if magnitude == 0u {
        return 0u;
    }
    let value = parts_of(magnitude);
    let scale = parts_of(scale_bits);
    let shift = value.exponent - scale.exponent + 1;
    if shift < 0 {
        return 0u; // less than half of the scale
    }
    var result = 127u;
    if shift <= 8 {
        // How many halves of the scale.
        let doubled = value.mantissa << u32(shift);
        let halves = doubled / scale.mantissa;
        let rest = doubled % scale.mantissa;
        // The odd number of halves next to it is a tie, and so is all that rounds to it as a float: that
        // has 24 bits, of which the tie takes the leading ones.
        let tie = halves | 1u;
        let distance = select(scale.mantissa - rest, rest, halves == tie);
        let below = halves / 2u;
        if distance <= scale.mantissa >> (24u - firstLeadingBit(tie)) {
            result = below + (below & 1u);
        } else {
            result = (halves + 1u) / 2u;
        }
        result = min(result, 127u);
    }
    return select(result, 0u - result, bits >> 31u == 1u) & 0xffu;
}
