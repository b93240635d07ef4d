// Draws normal numbers. One thread draws one block of four words, which make those of four elements side
// by side.
@group(0) @binding(0) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    // Of one row.
    features: u32,
    path: u32,
    // The bits of the standard deviation.
    scale: u32,
}
var<immediate> constants: Constants;

// What the draws are for: part of the key.
const USE: u32 = 4u;

#{FUNCTIONS}

#{RANDOM}

// Cosine and sine of whole turns below 1. Drivers' own are only good to 2^-11.
fn circle(turns: f32) -> vec2<f32> {
    let part = turns - round(turns);
    let quarters = round(part * 4.0);
    let rest = fma(quarters, -0.25, part);
    let square = rest * rest;
    var s = fma(-75.4456558, square, 81.5937653);
    s = fma(s, square, -41.341671);
    s = fma(s, square, -1.74845553e-07);
    s = fma(rest, 6.28318548, s * rest);
    var c = fma(59.3497009, square, -85.4471436);
    c = fma(c, square, 64.9393616);
    c = fma(c, square, -19.7392082);
    c = fma(c, square, 1.0);
    // Which quarter of the circle the rest is counted from.
    if quarters == 1.0 {
        return vec2<f32>(-s, c);
    }
    if quarters == -1.0 {
        return vec2<f32>(s, -c);
    }
    return select(vec2<f32>(c, s), vec2<f32>(-c, -s), abs(quarters) == 2.0);
}

// Two normal numbers from two words.
fn normal_pair(words: vec2<u32>) -> vec2<f32> {
    let u = f32((words.x >> 9u) * 2u + 1u) * 5.9604645e-8;
    // Drivers' logarithms are only good to an absolute error near 1.
    let depth = -select(log(u), loom_ln_1p(u - 1.0), u >= 0.5);
    let radius = sqrt(2.0 * depth) * bitcast<f32>(constants.scale);
    return radius * circle(f32(words.y >> 8u) * 5.9604645e-8);
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(group, groups) * THREADS + thread;
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
    let numbers = vec4<f32>(normal_pair(words.xy), normal_pair(words.zw));
    for (var word = 0u; word < 4u; word += 1u) {
        let i = index * 4u + word - skip;
        // Before the first element this is a large number.
        if i < constants.elements {
            y[i] = numbers[word];
        }
    }
}
