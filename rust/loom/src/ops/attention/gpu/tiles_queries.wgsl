// Gradients of the queries, a tile of them and a tile of keys at a time; see tiles.rs.
#{VECTORS}

#{SIGHT}

// Queries, and the gradients of what they have gathered.
var<workgroup> asked: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> given: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> keys: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> values: array<vec4<f32>, OTHER * STRIDE>;
// For each key the gradients of all queries' scores.
var<workgroup> slopes: array<vec4<f32>, OTHER * QUADS_STRIDE>;

// The gradient of a score.
fn slope(
    row: u32, head: u32, query: u32, key: u32, score: f32, gradient: f32, sum_log: f32, mean: f32,
) -> f32 {
    if query < constants.queries && sees(row, query, key) {
        let limited = capped(biased(head, query, key, score));
        return exp(limited - sum_log) * (gradient - mean) * cap_slope(limited);
    }
    return 0.0;
}

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    // The last queries see most keys, where they do not see all: those who take longest start first.
    let across = constants.groups / constants.tiles;
    let tile = (constants.tiles - 1u - number / across) * OWN;
    let head = number % across % HEADS;
    let row = number % across / HEADS;
    for (var i = thread; i < OWN * UNITS; i += THREADS) {
        let query = tile + i / UNITS;
        let theirs = (row * constants.queries + query) * HEADS + head;
        let present = query < constants.queries;
        asked[i / UNITS * STRIDE + i % UNITS] = load_q(theirs, i % UNITS, present) * SCALE;
        given[i / UNITS * STRIDE + i % UNITS] = load_dy(theirs, i % UNITS, present);
    }
    // A thread scores four neighbouring queries with two keys.
    let quad = thread / COLUMNS;
    let column = thread % COLUMNS;
    var sum_logs = vec4<f32>();
    var mean_slopes = vec4<f32>();
    for (var i = 0u; i < 4u; i += 1u) {
        let theirs = (row * constants.queries + min(tile + quad * 4u + i, constants.queries - 1u)) * HEADS + head;
        sum_logs[i] = logs[theirs];
        mean_slopes[i] = means[theirs];
    }
    #{ZERO}
    let first = first_key(row, tile) / OTHER * OTHER;
    let last = last_key(row, min(tile + OWN, constants.queries) - 1u);
    for (var base = first; base < last; base += OTHER) {
        workgroupBarrier();
        for (var i = thread; i < OTHER * UNITS; i += THREADS) {
            let key = base + i / UNITS;
            let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
            keys[i / UNITS * STRIDE + i % UNITS] = load_k(theirs, i % UNITS, key < last);
            values[i / UNITS * STRIDE + i % UNITS] = load_v(theirs, i % UNITS, key < last);
        }
        workgroupBarrier();
        #{SCORES}
        let kept0 = kept_of_four(row, head, tile + quad * 4u, base + column);
        let kept1 = kept_of_four(row, head, tile + quad * 4u, base + column + COLUMNS);
        slopes[column * QUADS_STRIDE + quad] = #{SLOPE0};
        slopes[(column + COLUMNS) * QUADS_STRIDE + quad] = #{SLOPE1};
        workgroupBarrier();
        for (var j = 0u; j < OTHER; j += 1u) {
            #{GATHER}
        }
    }
    #{STORE}
}
