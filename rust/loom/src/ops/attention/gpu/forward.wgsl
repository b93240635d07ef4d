// Queries gather values: a thread a query, with its vectors in registers.
#{VECTORS}

#{SIGHT}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

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
    let place = position(row) + query;
    let mine = (row * constants.queries + query) * HEADS + head;
    #{LOAD}
    #{ZERO}
    var largest = LEAST;
    var total = 0.0;
    // What any query of the workgroup sees.
    let first = first_key(row, position(row) + tile * THREADS) / TILE * TILE;
    let last = last_key(row, position(row) + min(tile * THREADS + THREADS, constants.queries) - 1u);
    for (var base = first; base < last; base += TILE) {
        workgroupBarrier();
        for (var i = thread; i < TILE * UNITS; i += THREADS) {
            let key = base + i / UNITS;
            let theirs = (sequence(row) * constants.keys + key) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
            keys[i] = load_k(theirs, i % UNITS, key < last);
            values[i] = load_v(theirs, i % UNITS, key < last);
        }
        workgroupBarrier();
        for (var j = 0u; j < TILE; j += 1u) {
            if !present || !sees(row, place, base + j) {
                continue;
            }
            var products = vec4<f32>();
            #{SCORE}
            let score = capped(biased(head, place, base + j, products.x + products.y + (products.z + products.w)));
            if score > largest {
                let fade = exp(largest - score);
                total *= fade;
                #{FADE}
                largest = score;
            }
            let share = exp(score - largest);
            total += share;
            let weight = share * kept(row, head, query, base + j);
            #{GATHER}
        }
    }
    if present {
        // A query that has seen nothing gets zeros; its weights would be zero in the gradient, too.
        let whole = select(1.0 / total, 0.0, total == 0.0);
        logs[mine] = select(largest + log(total), -LEAST, total == 0.0);
        #{STORE}
    }
}
