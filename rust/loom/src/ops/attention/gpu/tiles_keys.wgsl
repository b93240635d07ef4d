// Gradients of keys and values, a tile of them and a tile of queries at a time; see tiles.rs.
#{VECTORS}

#{SIGHT}

var<workgroup> keys: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> values: array<vec4<f32>, OWN * STRIDE>;
// Queries, and the gradients of what they have gathered.
var<workgroup> asked: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> given: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> sum_logs: array<f32, OTHER>;
var<workgroup> mean_slopes: array<f32, OTHER>;
// For each query those of all keys, and the gradients of their scores.
var<workgroup> weights: array<vec4<f32>, OTHER * QUADS_STRIDE>;
var<workgroup> slopes: array<vec4<f32>, OTHER * QUADS_STRIDE>;

// A weight, and the gradient of its score.
fn weighed(
    row: u32, head: u32, query: u32, key: u32, last: u32, score: f32, gradient: f32, sum_log: f32, mean: f32,
) -> vec2<f32> {
    if query < last && key < constants.keys && sees(row, query, key) {
        let limited = capped(biased(head, query, key, score));
        let weight = exp(limited - sum_log);
        let stays = kept(row, head, query, key);
        return vec2<f32>(weight * stays, weight * (gradient * stays - mean) * cap_slope(limited));
    }
    return vec2<f32>();
}

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    // The first keys are seen by most queries, where not by all: those who take longest start first.
    let across = constants.groups / constants.tiles;
    let tile = number / across * OWN;
    let slice = number % across % (KEY_VALUE_HEADS * SHARES);
    let head = slice / SHARES;
    let row = number % across / (KEY_VALUE_HEADS * SHARES);
    let home = slice % SHARES * (across / (KEY_VALUE_HEADS * SHARES)) + row;
    for (var i = thread; i < OWN * UNITS; i += THREADS) {
        let key = tile + i / UNITS;
        let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head;
        keys[i / UNITS * STRIDE + i % UNITS] = load_k(theirs, i % UNITS, key < constants.keys);
        values[i / UNITS * STRIDE + i % UNITS] = load_v(theirs, i % UNITS, key < constants.keys);
    }
    // A thread takes four neighbouring keys with two queries.
    let quad = thread / COLUMNS;
    let column = thread % COLUMNS;
    #{ZERO}
    // The queries that see any key of the workgroup.
    let first = first_query(tile) / OTHER * OTHER;
    let last = last_query(min(tile + OWN, constants.keys) - 1u);
    for (var member = slice * MEMBERS; member < slice * MEMBERS + MEMBERS; member += 1u) {
        for (var base = first; base < last; base += OTHER) {
            workgroupBarrier();
            for (var i = thread; i < OTHER * UNITS; i += THREADS) {
                let query = base + i / UNITS;
                let theirs = (row * constants.queries + query) * HEADS + member;
                asked[i / UNITS * STRIDE + i % UNITS] = load_q(theirs, i % UNITS, query < last) * SCALE;
                given[i / UNITS * STRIDE + i % UNITS] = load_dy(theirs, i % UNITS, query < last);
            }
            for (var i = thread; i < OTHER; i += THREADS) {
                let theirs = (row * constants.queries + min(base + i, last - 1u)) * HEADS + member;
                sum_logs[i] = logs[theirs];
                mean_slopes[i] = means[theirs];
            }
            workgroupBarrier();
            #{SCORES}
            #{WEIGHED}
            workgroupBarrier();
            for (var j = 0u; j < OTHER; j += 1u) {
                #{GATHER}
            }
        }
    }
    #{STORE}
}
