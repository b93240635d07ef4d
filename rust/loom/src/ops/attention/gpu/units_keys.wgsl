// Gradients of keys and values on matrix units, a tile of them and a tile of queries at a time; see units.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

// Keys, then values at first; then queries and, behind them, the gradients of what they have gathered.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
// Scores and, behind them, their weights' gradients.
var<workgroup> scores: array<vec4<f32>, 2 * OWN * SCORES>;
// For each key the weights of the queries and, behind those, the gradients of the scores.
var<workgroup> weights: array<vec4<f16>, 2 * OWN * WEIGHTS>;
// What the weights of each query are made with.
var<workgroup> sum_logs: array<f32, OTHER>;
var<workgroup> mean_slopes: array<f32, OTHER>;

// A weight, and the gradient of the product of the query and the key.
fn weighed(row: u32, query: u32, key: u32, last: u32, score: f32, gradient: f32, other: u32) -> vec2<f32> {
    if query < last && key < constants.keys && sees(row, query, key) {
        let limited = capped(score * SCALE);
        let weight = exp(limited - sum_logs[other]);
        return vec2<f32>(weight, weight * (gradient - mean_slopes[other]) * cap_slope(limited) * SCALE);
    }
    return vec2<f32>();
}

struct Weighed {
    weights: vec4<f32>,
    slopes: vec4<f32>,
}

// Those of four queries side by side.
fn weighed4(
    row: u32, base: u32, key: u32, last: u32, scores: vec4<f32>, gradients: vec4<f32>, other: u32
) -> Weighed {
    let x = weighed(row, base + other, key, last, scores.x, gradients.x, other);
    let y = weighed(row, base + other + 1u, key, last, scores.y, gradients.y, other + 1u);
    let z = weighed(row, base + other + 2u, key, last, scores.z, gradients.z, other + 2u);
    let w = weighed(row, base + other + 3u, key, last, scores.w, gradients.w, other + 3u);
    return Weighed(vec4<f32>(x.x, y.x, z.x, w.x), vec4<f32>(x.y, y.y, z.y, w.y));
}

fn main(number: u32, thread: u32, subgroup: u32) {
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
    let place = subgroup * 16u;
    for (var i = thread; i < OWN * PIECES; i += THREADS) {
        let key = tile + i / PIECES;
        let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head;
        held[i / PIECES * STRIDE + i % PIECES] = halves_k(theirs, i % PIECES, key < constants.keys);
    }
    workgroupBarrier();
    #{ASK}
    workgroupBarrier();
    for (var i = thread; i < OWN * PIECES; i += THREADS) {
        let key = tile + i / PIECES;
        let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head;
        held[i / PIECES * STRIDE + i % PIECES] = halves_v(theirs, i % PIECES, key < constants.keys);
    }
    workgroupBarrier();
    #{GIVE}
    // Two threads, of the subgroup that scores it, look after a key.
    let mine = thread / 2u;
    let side = thread % 2u;
    let key = tile + mine;
    let last_own = min(tile + OWN, constants.keys) - 1u;
    #{ZERO}
    // The queries that see any key of the workgroup.
    let first = #{FIRST};
    let last = #{LAST};
    for (var member = slice * MEMBERS; member < slice * MEMBERS + MEMBERS; member += 1u) {
        for (var base = first; base < last; base += OTHER) {
            workgroupBarrier();
            for (var i = thread; i < OTHER * PIECES; i += THREADS) {
                let query = base + i / PIECES;
                let theirs = (row * constants.queries + query) * HEADS + member;
                held[i / PIECES * STRIDE + i % PIECES] = halves_q(theirs, i % PIECES, query < last);
                held[(OTHER + i / PIECES) * STRIDE + i % PIECES] = halves_dy(theirs, i % PIECES, query < last);
            }
            for (var i = thread; i < OTHER; i += THREADS) {
                let theirs = (row * constants.queries + min(base + i, last - 1u)) * HEADS + member;
                sum_logs[i] = logs[theirs];
                mean_slopes[i] = means[theirs];
            }
            workgroupBarrier();
            #{SCORE}
            workgroupBarrier();
            for (var i = 0u; i < OTHER / 8u; i += 1u) {
                let at = side * (OTHER / 8u) + i;
                let score = scores[mine * SCORES + at];
                let gradient = scores[(OWN + mine) * SCORES + at];
                let four = weighed4(row, base, key, last, score, gradient, at * 4u);
                weights[mine * WEIGHTS + at] = vec4<f16>(four.weights);
                weights[(OWN + mine) * WEIGHTS + at] = vec4<f16>(four.slopes);
            }
            workgroupBarrier();
            #{GATHER}
        }
    }
    #{STORE}
}
