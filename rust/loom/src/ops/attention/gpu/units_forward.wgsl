// Queries gather values on matrix units, a tile of queries and a tile of keys at a time; see units.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

// Queries at first, then keys and, behind them, values.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
var<workgroup> scores: array<vec4<f32>, OWN * SCORES>;
// For each query those of the keys.
var<workgroup> weights: array<vec4<f16>, OWN * WEIGHTS>;

// A score as it is compared and weighed: the least of all where the query does not see the key.
fn seen(row: u32, query: u32, key: u32, score: f32) -> f32 {
    if query < constants.queries && sees(row, query, key) {
        return capped(score * SCALE);
    }
    return LEAST;
}

// A thread's share of a query's scores with the keys of a tile.
fn seen4(row: u32, query: u32, key: u32, four: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        seen(row, query, key, four.x),
        seen(row, query, key + 1u, four.y),
        seen(row, query, key + 2u, four.z),
        seen(row, query, key + 3u, four.w),
    );
}

fn weighed(score: vec4<f32>, sum_log: f32) -> vec4<f32> {
    return select(exp(score - sum_log), vec4<f32>(), score == vec4<f32>(LEAST));
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
    for (var i = thread; i < OWN * PIECES; i += THREADS) {
        let query = tile + i / PIECES;
        let theirs = (row * constants.queries + query) * HEADS + head;
        held[i / PIECES * STRIDE + i % PIECES] = halves_q(theirs, i % PIECES, query < constants.queries);
    }
    workgroupBarrier();
    let place = subgroup * 16u;
    #{ASK}
    // Two threads, of the subgroup that scores it, look after a query.
    let mine = thread / 2u;
    let side = thread % 2u;
    let query = tile + mine;
    let last_own = min(tile + OWN, constants.queries) - 1u;
    let first = #{FIRST};
    let last = #{LAST};
    // Once for the sum of what weights are made of, then once more for the weights themselves: so that what is
    // gathered never has to be made smaller for a larger score that comes later.
    var largest = LEAST;
    var total = 0.0;
    for (var base = first; base < last; base += OTHER) {
        workgroupBarrier();
        for (var i = thread; i < OTHER * PIECES; i += THREADS) {
            let key = base + i / PIECES;
            let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + their_head;
            held[i / PIECES * STRIDE + i % PIECES] = halves_k(theirs, i % PIECES, key < last);
        }
        workgroupBarrier();
        #{SCORE}
        workgroupBarrier();
        var larger = largest;
        for (var i = 0u; i < OTHER / 8u; i += 1u) {
            let at = side * (OTHER / 8u) + i;
            let four = seen4(row, query, base + at * 4u, scores[mine * SCORES + at]);
            scores[mine * SCORES + at] = four;
            larger = max(larger, max(max(four.x, four.y), max(four.z, four.w)));
        }
        var sum = vec4<f32>();
        for (var i = 0u; i < OTHER / 8u; i += 1u) {
            sum += weighed(scores[mine * SCORES + side * (OTHER / 8u) + i], larger);
        }
        total = fma(total, exp(largest - larger), (sum.x + sum.y) + (sum.z + sum.w));
        largest = larger;
    }
    workgroupBarrier();
    scores[mine * SCORES][side * 2u] = largest;
    scores[mine * SCORES][side * 2u + 1u] = total;
    workgroupBarrier();
    let both = scores[mine * SCORES];
    let larger = max(both.x, both.z);
    let whole = both.y * exp(both.x - larger) + both.w * exp(both.z - larger);
    // A query that has seen nothing gets zeros; its weights would be zero in the gradient, too.
    let sum_log = select(larger + log(whole), -LEAST, whole == 0.0);
    if side == 0u && query < constants.queries {
        logs[(row * constants.queries + query) * HEADS + head] = sum_log;
    }
    #{ZERO}
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
            let four = seen4(row, query, base + at * 4u, scores[mine * SCORES + at]);
            weights[mine * WEIGHTS + at] = vec4<f16>(weighed(four, sum_log));
        }
        workgroupBarrier();
        #{GATHER}
    }
    #{STORE}
}
