// Queries gather values, a tile of queries and a tile of keys at a time; see tiles.rs.
#{VECTORS}

#{SIGHT}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

var<workgroup> asked: array<vec4<f32>, OWN * STRIDE>;
var<workgroup> keys: array<vec4<f32>, OTHER * STRIDE>;
var<workgroup> values: array<vec4<f32>, OTHER * STRIDE>;
// For each key those of all queries.
var<workgroup> weights: array<vec4<f32>, OTHER * QUADS_STRIDE>;
// What the threads that share four queries tell each other.
var<workgroup> told: array<vec4<f32>, QUADS * COLUMNS>;
var<workgroup> fades: array<vec4<f32>, QUADS>;

// A score as it is compared and weighed: the least of all where the query does not see the key.
fn seen(row: u32, head: u32, query: u32, key: u32, score: f32) -> f32 {
    if query < constants.queries && sees(row, position(row) + query, key) {
        return capped(biased(head, position(row) + query, key, score));
    }
    return LEAST;
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
        asked[i / UNITS * STRIDE + i % UNITS] = load_q(theirs, i % UNITS, query < constants.queries) * SCALE;
    }
    // A thread scores four neighbouring queries with two keys.
    let quad = thread / COLUMNS;
    let column = thread % COLUMNS;
    var largest = vec4<f32>(LEAST);
    var total = vec4<f32>();
    #{ZERO}
    // What any query of the workgroup sees.
    let first = first_key(row, position(row) + tile) / OTHER * OTHER;
    let last = last_key(row, position(row) + min(tile + OWN, constants.queries) - 1u);
    for (var base = first; base < last; base += OTHER) {
        workgroupBarrier();
        for (var i = thread; i < OTHER * UNITS; i += THREADS) {
            let key = base + i / UNITS;
            let theirs = (sequence(row) * constants.keys + key) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
            keys[i / UNITS * STRIDE + i % UNITS] = load_k(theirs, i % UNITS, key < last);
            values[i / UNITS * STRIDE + i % UNITS] = load_v(theirs, i % UNITS, key < last);
        }
        workgroupBarrier();
        #{SCORES}
        let s0 = #{SEEN0};
        let s1 = #{SEEN1};
        told[quad * COLUMNS + column] = max(s0, s1);
        workgroupBarrier();
        var larger = largest;
        for (var i = 0u; i < COLUMNS; i += 1u) {
            larger = max(larger, told[quad * COLUMNS + i]);
        }
        let fade = exp(largest - larger);
        largest = larger;
        let p0 = select(exp(s0 - larger), vec4<f32>(), s0 == vec4<f32>(LEAST));
        let p1 = select(exp(s1 - larger), vec4<f32>(), s1 == vec4<f32>(LEAST));
        total = fma(total, fade, p0 + p1);
        let asking = tile + quad * 4u;
        weights[column * QUADS_STRIDE + quad] = p0 * kept_of_four(row, head, asking, base + column);
        weights[(column + COLUMNS) * QUADS_STRIDE + quad] = p1 * kept_of_four(row, head, asking, base + column + COLUMNS);
        if column == 0u {
            fades[quad] = fade;
        }
        workgroupBarrier();
        #{FADE}
        for (var j = 0u; j < OTHER; j += 1u) {
            #{GATHER}
        }
    }
    workgroupBarrier();
    told[quad * COLUMNS + column] = total;
    workgroupBarrier();
    if column == 0u {
        var sum = vec4<f32>();
        for (var i = 0u; i < COLUMNS; i += 1u) {
            sum += told[quad * COLUMNS + i];
        }
        // A query that has seen nothing gets zeros; its weights would be zero in the gradient, too.
        let nothing = sum == vec4<f32>();
        fades[quad] = select(1.0 / sum, vec4<f32>(), nothing);
        let sum_logs = select(largest + log(sum), vec4<f32>(-LEAST), nothing);
        for (var i = 0u; i < 4u; i += 1u) {
            let query = tile + quad * 4u + i;
            if query < constants.queries {
                logs[(row * constants.queries + query) * HEADS + head] = sum_logs[i];
            }
        }
    }
    workgroupBarrier();
    #{STORE}
}
