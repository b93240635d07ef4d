// Gradients of the queries on matrix units, a tile of them and a tile of keys at a time; see units.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

// Queries and the gradients of what they have gathered at first, then keys and, behind them, values.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
// Scores and, behind them, their weights' gradients.
var<workgroup> scores: array<vec4<f32>, 2 * OWN * SCORES>;
// For each query the gradients of its scores.
var<workgroup> slopes: array<vec4<f16>, OWN * WEIGHTS>;

// The gradient of a product of a query and a key.
fn slope(row: u32, query: u32, key: u32, score: f32, gradient: f32, sum_log: f32, mean: f32) -> f32 {
    if query < constants.queries && sees(row, query, key) {
        let limited = capped(score * SCALE);
        return exp(limited - sum_log) * (gradient - mean) * cap_slope(limited) * SCALE;
    }
    return 0.0;
}

// Those of four keys side by side.
fn slope4(
    row: u32, query: u32, key: u32, scores: vec4<f32>, gradients: vec4<f32>, sum_log: f32, mean: f32
) -> vec4<f32> {
    return vec4<f32>(
        slope(row, query, key, scores.x, gradients.x, sum_log, mean),
        slope(row, query, key + 1u, scores.y, gradients.y, sum_log, mean),
        slope(row, query, key + 2u, scores.z, gradients.z, sum_log, mean),
        slope(row, query, key + 3u, scores.w, gradients.w, sum_log, mean),
    );
}

fn main(number: u32, thread: u32, subgroup: u32) {
    if number >= constants.groups {
        return;
    }
    // The last queries see most keys, where they do not see all: those who take longest start first.
    let across = constants.groups / constants.tiles;
    let tile = (constants.tiles - 1u - number / across) * OWN;
    let head = number % across % HEADS;
    let row = number % across / HEADS;
    let their_head = head / (HEADS / KEY_VALUE_HEADS);
    let place = subgroup * 16u;
    for (var i = thread; i < OWN * PIECES; i += THREADS) {
        let query = tile + i / PIECES;
        let theirs = (row * constants.queries + query) * HEADS + head;
        held[i / PIECES * STRIDE + i % PIECES] = halves_q(theirs, i % PIECES, query < constants.queries);
    }
    workgroupBarrier();
    #{ASK}
    workgroupBarrier();
    for (var i = thread; i < OWN * PIECES; i += THREADS) {
        let query = tile + i / PIECES;
        let theirs = (row * constants.queries + query) * HEADS + head;
        held[i / PIECES * STRIDE + i % PIECES] = halves_dy(theirs, i % PIECES, query < constants.queries);
    }
    workgroupBarrier();
    #{GIVE}
    // Two threads, of the subgroup that scores it, look after a query.
    let mine = thread / 2u;
    let side = thread % 2u;
    let query = tile + mine;
    let last_own = min(tile + OWN, constants.queries) - 1u;
    let theirs = (row * constants.queries + min(query, last_own)) * HEADS + head;
    let sum_log = logs[theirs];
    let mean = means[theirs];
    #{ZERO}
    let first = #{FIRST};
    let last = #{LAST};
    for (var base = first; base < last; base += OTHER) {
        workgroupBarrier();
        for (var i = thread; i < OTHER * PIECES; i += THREADS) {
            let key = base + i / PIECES;
            let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + their_head;
            held[i / PIECES * STRIDE + i % PIECES] = halves_k(theirs, i % PIECES, key < last);
            held[(OTHER + i / PIECES) * STRIDE + i % PIECES] = halves_v(theirs, i % PIECES, key < last);
        }
        workgroupBarrier();
        #{SCORE}
        workgroupBarrier();
        for (var i = 0u; i < OTHER / 8u; i += 1u) {
            let at = side * (OTHER / 8u) + i;
            let score = scores[mine * SCORES + at];
            let gradient = scores[(OWN + mine) * SCORES + at];
            let four = slope4(row, query, base + at * 4u, score, gradient, sum_log, mean);
            slopes[mine * WEIGHTS + at] = vec4<f16>(four);
        }
        workgroupBarrier();
        #{GATHER}
    }
    #{STORE}
}
