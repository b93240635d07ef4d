// Turns pairs of elements by angles that depend on their places: a thread a pair.
@group(0) @binding(0) var<storage, read> x: array<f32>;
// For each place, the cosines of all pairs, then their sines.
@group(0) @binding(1) var<storage, read> turns: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    time: u32,
    heads: u32,
    places: u32,
    // Of all heads, steps and rows.
    pairs: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.pairs {
        return;
    }
    let pair = i % PAIRS;
    let head = i / PAIRS;
    let place = min(#{POSITION} + head / constants.heads % constants.time, constants.places - 1u);
    let cosine = turns[place * 2u * PAIRS + pair];
    let sine = #{SIGN}turns[place * 2u * PAIRS + PAIRS + pair];
    let first = head * 2u * PAIRS + #{FIRST};
    let second = head * 2u * PAIRS + #{SECOND};
    let a = x[first];
    let b = x[second];
    y[first] = a * cosine - b * sine;
    y[second] = b * cosine + a * sine;
}
