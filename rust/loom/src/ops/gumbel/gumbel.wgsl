// Adds Gumbel noise. One thread draws one block of four words, those of four elements side by side.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    // Of one row.
    features: u32,
    path: u32,
}
var<immediate> constants: Constants;

// What the draws are for: part of the key.
const USE: u32 = 3u;

#{FUNCTIONS}

#{RANDOM}

fn noise_of(word: u32) -> f32 {
    let u = f32((word >> 9u) * 2u + 1u) * 5.9604645e-8;
    // Drivers' logarithms are only good to an absolute error near 1.
    let depth = -select(log(u), loom_ln_1p(u - 1.0), u >= 0.5);
    return -log(depth);
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
    for (var word = 0u; word < 4u; word += 1u) {
        let i = index * 4u + word - skip;
        // Before the first element this is a large number.
        if i < constants.elements {
            y[i] = x[i] + noise_of(words[word]);
        }
    }
}
