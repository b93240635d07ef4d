// Arithmetic on the bits of floats with the CPU's results: drivers' divisions need not round as IEEE 754
// does, and may flush what is too small for a normal number.

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

// The quotient of two magnitudes, of which the second is not 0, rounded once.
fn quotient_of(numerator: u32, denominator: u32) -> u32 {
    if numerator == 0u {
        return 0u;
    }
    let above = parts_of(numerator);
    let below = parts_of(denominator);
    var exponent = above.exponent - below.exponent + 127;
    var rest = above.mantissa;
    if rest < below.mantissa {
        rest <<= 1u;
        exponent -= 1;
    }
    // 25 bits, the first of them 1, and what is lost.
    rest -= below.mantissa;
    var digits = 1u;
    for (var round = 0; round < 3; round++) {
        rest <<= 8u;
        digits = digits << 8u | rest / below.mantissa;
        rest %= below.mantissa;
    }
    if exponent > 254 {
        return 0x7f800000u;
    }
    var dropped = 1;
    if exponent < 1 {
        // Below the normal numbers there are fewer bits.
        dropped += 1 - exponent;
        exponent = 1;
    }
    if dropped > 26 {
        return 0u;
    }
    var mantissa = digits >> u32(dropped);
    let lost = digits & ((1u << u32(dropped)) - 1u);
    let half = 1u << u32(dropped - 1);
    if lost > half || (lost == half && (rest != 0u || (mantissa & 1u) == 1u)) {
        mantissa += 1u;
    }
    // The leading bit of a normal mantissa counts as one exponent more.
    return (u32(exponent - 1) << 23u) + mantissa;
}

// The sum of two magnitudes, rounded once.
fn sum_of(one: u32, other: u32) -> u32 {
    let small = min(one, other);
    let large = max(one, other);
    if small >= 1u << 23u {
        return bitcast<u32>(bitcast<f32>(large) + bitcast<f32>(small));
    }
    // Below the normal numbers, and one exponent on, bits count units of the same size.
    if large < 1u << 23u {
        return large + small;
    }
    // Less than half a unit in the last place.
    if small == 0u || large >= 40u << 23u {
        return large;
    }
    // Both times 2^64, and the sum divided by it; the factor's exponent is 64 - 149.
    let sum = bitcast<f32>(large + (64u << 23u)) + f32(small) * bitcast<f32>(42u << 23u);
    return bitcast<u32>(sum) - (64u << 23u);
}

// A magnitude rounded to an integer, half to even, and at most `limit`, which is below 2^23.
fn integer_of(magnitude: u32, limit: u32) -> u32 {
    let exponent = magnitude >> 23u;
    if exponent < 126u {
        return 0u;
    }
    if exponent >= 150u {
        return limit;
    }
    let mantissa = magnitude & 0x7fffffu | 0x800000u;
    let shift = 150u - exponent;
    var units = mantissa >> shift;
    let lost = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    if lost > half || (lost == half && (units & 1u) == 1u) {
        units += 1u;
    }
    return min(units, limit);
}
