// Gradients of keys and values: a thread a key, and the queries that see it in their order.
#{VECTORS}

#{SIGHT}

// A few queries, and the gradients of what they have gathered.
var<workgroup> asked: array<vec4<f32>, TILE * UNITS>;
var<workgroup> given: array<vec4<f32>, TILE * UNITS>;
var<workgroup> sum_logs: array<f32, TILE>;
var<workgroup> mean_slopes: array<f32, TILE>;

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    let tile = number % constants.tiles;
    let slice = number / constants.tiles % (KEY_VALUE_HEADS * SHARES);
    let head = slice / SHARES;
    let row = number / constants.tiles / (KEY_VALUE_HEADS * SHARES);
    let rows = constants.groups / constants.tiles / (KEY_VALUE_HEADS * SHARES);
    let home = slice % SHARES * rows + row;
    let key = tile * THREADS + thread;
    let present = key < constants.keys;
    let mine = (row * constants.keys + key) * KEY_VALUE_HEADS + head;
    #{LOAD}
    #{ZERO}
    // The queries that see any key of the workgroup.
    let first = first_query(tile * THREADS) / TILE * TILE;
    let last = last_query(min(tile * THREADS + THREADS, constants.keys) - 1u);
    for (var member = slice * MEMBERS; member < slice * MEMBERS + MEMBERS; member += 1u) {
        for (var base = first; base < last; base += TILE) {
            workgroupBarrier();
            for (var i = thread; i < TILE * UNITS; i += THREADS) {
                let query = base + i / UNITS;
                let theirs = (row * constants.queries + query) * HEADS + member;
                asked[i] = load_q(theirs, i % UNITS, query < last) * SCALE;
                given[i] = load_dy(theirs, i % UNITS, query < last);
            }
            if thread < TILE && base + thread < last {
                let theirs = (row * constants.queries + base + thread) * HEADS + member;
                sum_logs[thread] = logs[theirs];
                mean_slopes[thread] = means[theirs];
            }
            workgroupBarrier();
            for (var j = 0u; j < TILE; j += 1u) {
                if !present || base + j >= last || !sees(row, base + j, key) {
                    continue;
                }
                var products = vec4<f32>();
                var slopes = vec4<f32>();
                #{SCORE}
                let score = capped(biased(member, base + j, key, products.x + products.y + (products.z + products.w)));
                let share = exp(score - sum_logs[j]);
                let stays = kept(row, member, base + j, key);
                let gradient = (slopes.x + slopes.y + (slopes.z + slopes.w)) * stays;
                let weight = share * stays;
                let slope = share * (gradient - mean_slopes[j]) * cap_slope(score);
                #{GATHER}
            }
        }
    }
    if present {
        let made = (home * constants.keys + key) * KEY_VALUE_HEADS + head;
        #{STORE}
    }
}
