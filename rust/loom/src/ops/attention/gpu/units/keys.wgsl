// Gradients of keys and values on matrix units, a tile of them and a tile of queries at a time; see mod.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

#{SEEN}

// Keys, then values at first; then queries and, behind them, the gradients of what they have gathered.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
// Scores and, behind them, their weights' gradients.
var<workgroup> scores: array<vec4<f32>, 2 * OWN * SCORES>;
// For each key the weights of the queries and, behind those, the gradients of the scores.
var<workgroup> weights: array<vec4<f16>, 2 * OWN * WEIGHTS>;
// What the weights of each query are made with.
var<workgroup> sum_logs: array<f32, OTHER>;
var<workgroup> mean_slopes: array<f32, OTHER>;

fn main(number: u32, subgroup: u32, lane: u32) {
    if number >= constants.groups {
        return;
    }
    let thread = subgroup * 32u + lane;
    // The first keys are seen by most queries, where not by all: those who take longest start first.
    let across = constants.groups / constants.tiles;
    let tile = number / across * OWN;
    let slice = number % across % (KEY_VALUE_HEADS * SHARES);
    let head = slice / SHARES;
    let row = number % across / (KEY_VALUE_HEADS * SHARES);
    let home = slice % SHARES * (across / (KEY_VALUE_HEADS * SHARES)) + row;
    #{ASK}
    #{GIVE}
    // Two threads, of the subgroup that scores it, look after a key.
    let mine = subgroup * ROWS + lane / SIDES;
    let side = lane % SIDES;
    let key = tile + mine;
    let last_own = min(tile + OWN, constants.keys) - 1u;
    #{ZERO}
    // The queries that see any key of the workgroup, of one head after the other.
    let first = #{FIRST};
    let last = #{LAST};
    let turns = (max(last, first) - first + OTHER - 1u) / OTHER;
    var member = slice * MEMBERS;
    #{FETCH_FIRST}
    var base = first;
    for (var turn = 0u; turn < turns * MEMBERS; turn += 1u) {
        workgroupBarrier();
        #{HOLD}
        workgroupBarrier();
        let present = base;
        base += OTHER;
        if base >= last {
            base = first;
            member += 1u;
        }
        if turn + 1u < turns * MEMBERS {
            #{FETCH_NEXT}
        }
        #{SCORE}
        workgroupBarrier();
        let whole = #{WHOLE};
        for (var i = 0u; i < SHARE; i += 1u) {
            let at = side * SHARE + i;
            let limited = capped4(scores[mine * SCORES + at] * SCALE);
            let four = at * 4u;
            let logs4 = vec4<f32>(sum_logs[four], sum_logs[four + 1u], sum_logs[four + 2u], sum_logs[four + 3u]);
            let means4 = vec4<f32>(mean_slopes[four], mean_slopes[four + 1u], mean_slopes[four + 2u], mean_slopes[four + 3u]);
            var weight = exp(limited - logs4);
            if !whole {
                weight = select(vec4<f32>(), weight, seen4(row, present + four, key, last));
            }
            let gradient = scores[(OWN + mine) * SCORES + at] - means4;
            weights[mine * WEIGHTS + at] = vec4<f16>(weight);
            weights[(OWN + mine) * WEIGHTS + at] = vec4<f16>(weight * gradient * cap_slope4(limited) * SCALE);
        }
        workgroupBarrier();
        #{GATHER}
    }
    #{STORE}
}
