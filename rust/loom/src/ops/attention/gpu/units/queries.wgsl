// Gradients of the queries on matrix units, a tile of them and a tile of keys at a time; see mod.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

#{SEEN}

// Queries and the gradients of what they have gathered at first, then keys and, behind them, values.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
// Scores and, behind them, their weights' gradients.
var<workgroup> scores: array<vec4<f32>, 2 * OWN * SCORES>;
// For each query the gradients of its scores.
var<workgroup> slopes: array<vec4<f16>, OWN * WEIGHTS>;

// The gradients of products of a query and four keys.
fn slope4(scores: vec4<f32>, gradients: vec4<f32>, sum_log: f32, mean: f32) -> vec4<f32> {
    let limited = capped4(scores * SCALE);
    return exp(limited - sum_log) * (gradients - mean) * cap_slope4(limited) * SCALE;
}

fn main(number: u32, subgroup: u32, lane: u32) {
    if number >= constants.groups {
        return;
    }
    let thread = subgroup * 32u + lane;
    // The last queries see most keys, where they do not see all: those who take longest start first.
    let across = constants.groups / constants.tiles;
    let tile = (constants.tiles - 1u - number / across) * OWN;
    let head = number % across % HEADS;
    let row = number % across / HEADS;
    let their_head = head / (HEADS / KEY_VALUE_HEADS);
    #{ASK}
    #{GIVE}
    // Two threads, of the subgroup that scores it, look after a query.
    let mine = subgroup * ROWS + lane / SIDES;
    let side = lane % SIDES;
    let query = tile + mine;
    let last_own = min(tile + OWN, constants.queries) - 1u;
    let theirs = (row * constants.queries + min(query, last_own)) * HEADS + head;
    let sum_log = logs[theirs];
    let mean = means[theirs];
    #{ZERO}
    let first = #{FIRST};
    let last = #{LAST};
    #{FETCH_FIRST}
    for (var base = first; base < last; base += OTHER) {
        workgroupBarrier();
        #{HOLD}
        workgroupBarrier();
        if base + OTHER < last {
            #{FETCH_NEXT}
        }
        #{SCORE}
        workgroupBarrier();
        let whole = #{WHOLE};
        for (var i = 0u; i < SHARE; i += 1u) {
            let at = side * SHARE + i;
            var four = slope4(scores[mine * SCORES + at], scores[(OWN + mine) * SCORES + at], sum_log, mean);
            if !whole {
                four = select(vec4<f32>(), four, seen4(row, query, base + at * 4u));
            }
            slopes[mine * WEIGHTS + at] = vec4<f16>(four);
        }
        workgroupBarrier();
        #{GATHER}
    }
    #{STORE}
}
