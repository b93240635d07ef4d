// Gradients of the queries: a thread a query, as in the forward pass.
#{VECTORS}

#{SIGHT}

var<workgroup> keys: array<vec4<f32>, TILE * UNITS>;
var<workgroup> values: array<vec4<f32>, TILE * UNITS>;

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    let tile = number % constants.tiles;
    let head = number / constants.tiles % HEADS;
    let row = number / constants.tiles / HEADS;
    let query = tile * THREADS + thread;
    let present = query < constants.queries;
    let mine = (row * constants.queries + query) * HEADS + head;
    #{LOAD}
    #{ZERO}
    var sum_log = 0.0;
    var mean = 0.0;
    if present {
        sum_log = logs[mine];
        mean = means[mine];
    }
    let first = first_key(row, tile * THREADS) / TILE * TILE;
    let last = last_key(row, min(tile * THREADS + THREADS, constants.queries) - 1u);
    for (var base = first; base < last; base += TILE) {
        workgroupBarrier();
        for (var i = thread; i < TILE * UNITS; i += THREADS) {
            let key = base + i / UNITS;
            let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
            keys[i] = load_k(theirs, i % UNITS, key < last);
            values[i] = load_v(theirs, i % UNITS, key < last);
        }
        workgroupBarrier();
        for (var j = 0u; j < TILE; j += 1u) {
            if !present || !sees(row, query, base + j) {
                continue;
            }
            var products = vec4<f32>();
            var slopes = vec4<f32>();
            #{SCORE}
            let score = capped(biased(head, query, base + j, products.x + products.y + (products.z + products.w)));
            let weight = exp(score - sum_log);
            let gradient = (slopes.x + slopes.y + (slopes.z + slopes.w)) * kept(row, head, query, base + j);
            let slope = weight * (gradient - mean) * cap_slope(score);
            #{GATHER}
        }
    }
    if present {
        #{STORE}
    }
}
