// The scales of a parameter's groups: of 16 columns a workgroup, each in 16 lanes that take its rows in
// turn and are put together as a tree, as on the CPU.

#{DIVISION}

// What is found in a lane: the largest magnitude; or the largest of negative numbers and the largest of
// the others; or the sum of magnitudes, as a float's bits.
var<workgroup> cells: array<vec2<u32>, 256>;
// Whether a sum of magnitudes is infinite.
var<workgroup> overflows: u32;

fn joined(found: vec2<u32>, other: vec2<u32>) -> vec2<u32> {
    if MEAN {
        return vec2<u32>(sum_of(found.x, other.x), 0u);
    }
    return max(found, other);
}

// Sums that are infinite are taken again, of magnitudes divided by 2^62.
fn found_in(bits: u32, shrinks: bool) -> vec2<u32> {
    let magnitude = bits & 0x7fffffffu;
    if shrinks {
        return vec2<u32>(quotient_of(magnitude, 0x5e800000u), 0u);
    }
    if RANGE && bits >> 31u == 0u {
        return vec2<u32>(0u, magnitude);
    }
    return vec2<u32>(magnitude, 0u);
}

// Whether a code times the scale is finite as a float: less than 2^128 - 2^103, both times 2.
fn decodes_finite(code: u32, scale: u32) -> bool {
    let of_scale = parts_of(scale);
    let shift = 254 - of_scale.exponent;
    if shift > 16 {
        return true;
    }
    let low = (of_scale.mantissa & 0xffffu) * code;
    let high = (of_scale.mantissa >> 16u) * code + (low >> 16u);
    let limit_high = 0x1ffffffu >> u32(17 - shift);
    let limit_low = (0x1ffffffu << u32(shift)) & 0x1ffffu;
    return high < limit_high || (high == limit_high && (low & 0xffffu) * 2u < limit_low);
}

// How many times the scale goes into a magnitude, rounded up; any large number from 2^17 on.
fn times_of(magnitude: u32, scale: u32) -> u32 {
    if magnitude == 0u {
        return 0u;
    }
    let above = parts_of(magnitude);
    let below = parts_of(scale);
    let doublings = above.exponent - below.exponent;
    if doublings < 0 {
        return 1u;
    }
    if doublings > 17 {
        return 1u << 18u;
    }
    var rest = above.mantissa;
    var times = 0u;
    for (var round = 0; round <= doublings; round++) {
        times <<= 1u;
        if rest >= below.mantissa {
            rest -= below.mantissa;
            times += 1u;
        }
        if round < doublings {
            rest <<= 1u;
        }
    }
    return times + select(0u, 1u, rest != 0u);
}

// The scale of a range, from the largest magnitudes on both sides of zero, such that no code that is used
// decodes to infinity.
fn scale_of_range(below: u32, above: u32) -> u32 {
    let span = sum_of(below, above);
    var scale = quotient_of(span, LIMIT);
    if span >= 0x7f800000u {
        // Halves of the same.
        let one = 1u << 23u;
        scale = quotient_of(sum_of(below - one, above - one), LIMIT - one);
    }
    scale = max(scale, 0x00800000u);
    for (var round = 0; round < 2; round++) {
        let zero = integer_of(quotient_of(below, scale), LARGEST_CODE);
        let most = min(max(zero, LARGEST_CODE - zero), max(zero, times_of(above, scale)));
        if decodes_finite(most, scale) {
            break;
        }
        // One code fewer, so that the next rounding fits.
        scale = quotient_of(0x7f7fffffu, bitcast<u32>(f32(most + 1u))) - 1u;
    }
    return scale;
}

fn main(number: u32, thread: u32) {
    let first = number / constants.across * constants.block;
    let end = min(first + constants.block, constants.rows);
    let column = number % constants.across * 16u + thread % 16u;
    let there = number < constants.groups && column < constants.columns;
    var plain = vec2<u32>();
    for (var pass_number = 0u; pass_number < 2u; pass_number++) {
        let shrinks = pass_number == 1u;
        var found = vec2<u32>();
        if there {
            for (var row = first + thread / 16u; row < end; row += 16u) {
                found = joined(found, found_in(master[row * constants.columns + column], shrinks));
            }
        }
        cells[thread] = found;
        workgroupBarrier();
        for (var half = 128u; half >= 16u; half /= 2u) {
            if thread < half {
                cells[thread] = joined(cells[thread], cells[thread + half]);
            }
            workgroupBarrier();
        }
        if shrinks {
            break;
        }
        plain = cells[thread % 16u];
        if thread == 0u {
            overflows = 0u;
            for (var other = 0u; MEAN && other < 16u; other++) {
                overflows |= u32(cells[other].x >= 0x7f800000u);
            }
        }
        if workgroupUniformLoad(&overflows) == 0u {
            break;
        }
    }
    if thread >= 16u || !there || (control.applies == 0u && control.goes_back == 0u) {
        return;
    }
    let is_zero = plain.x == 0u && plain.y == 0u;
    var found = plain.x;
    if MEAN {
        let count = bitcast<u32>(f32(end - first));
        if found < 0x7f800000u {
            found = quotient_of(found, count);
        } else {
            found = quotient_of(quotient_of(cells[thread].x, count), 0x20800000u);
        }
    }
    // Not below the normal numbers, and not so large that the largest code would decode to infinity.
    var scale = clamp(quotient_of(found, LIMIT), 0x00800000u, LARGEST_SCALE);
    if RANGE {
        scale = scale_of_range(plain.x, plain.y);
    }
    if is_zero {
        // Decodes to zeros, for which a sign alone has no code.
        scale = select(0x3f800000u, 0u, SIGN_ALONE);
    }
    let at = (number / constants.across * constants.columns + column) * WORDS;
    scales[at] = scale;
    if RANGE {
        scales[at + 1u] = integer_of(quotient_of(plain.x, scale), LARGEST_CODE);
    }
}
