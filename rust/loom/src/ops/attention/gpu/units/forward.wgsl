// Queries gather values on matrix units, a tile of queries and a tile of keys at a time; see mod.rs.
enable f16;
enable wgpu_cooperative_matrix;
#{VECTORS}

#{SIGHT}

#{HALVES}

#{SEEN}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;
// How much larger a score may be than the reference that its weight is relative to: the weight is still an f16.
const MARGIN: f32 = 10.5;

// Queries at first, then keys and, behind them, values.
var<workgroup> held: array<vec4<f16>, 2 * OTHER * STRIDE>;
var<workgroup> scores: array<vec4<f32>, OWN * SCORES>;
// For each query those of the keys.
var<workgroup> weights: array<vec4<f16>, OWN * WEIGHTS>;
// What each query's sum is multiplied by.
var<workgroup> inverses: array<f32, OWN>;
// Whether some score was larger than its reference allows. Matrices are read and written from multiples of 16 bytes on:
// behind less, NVIDIA's driver would lay other arrays where they cannot be.
var<workgroup> repeats: array<u32, 4>;

fn largest_of(four: vec4<f32>) -> f32 {
    return max(max(four.x, four.y), max(four.z, four.w));
}

// A thread's share of a query's scores with the keys of a tile: the least of all where the query does not see the key.
fn limited(row: u32, query: u32, key: u32, whole: bool, four: vec4<f32>) -> vec4<f32> {
    let found = capped4(four * SCALE);
    if whole {
        return found;
    }
    return select(vec4<f32>(LEAST), found, seen4(row, query, key));
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
    if thread == 0u {
        repeats[0] = 0u;
    }
    #{ASK}
    // Two threads, of the subgroup that scores it, look after a query.
    let mine = subgroup * ROWS + lane / SIDES;
    let side = lane % SIDES;
    let query = tile + mine;
    let last_own = min(tile + OWN, constants.queries) - 1u;
    let first = #{FIRST};
    let last = #{LAST};
    // Weights are relative to the largest score with the first keys that a query sees; nothing that is gathered has to
    // be made smaller for larger scores that come later, unless one is so much larger that its weight is no f16: then
    // all is done once more, relative to the largest score of all.
    var reference = LEAST;
    var total = 0.0;
    #{ZERO}
    for (var attempt = 0u; attempt < 2u; attempt += 1u) {
        var largest = LEAST;
        for (var base = first; attempt == 1u && base < last; base += OTHER) {
            workgroupBarrier();
            #{FETCH_KEYS}
            workgroupBarrier();
            #{SCORE}
            workgroupBarrier();
            let whole = #{WHOLE};
            for (var i = 0u; i < SHARE; i += 1u) {
                let at = side * SHARE + i;
                largest = max(largest, largest_of(limited(row, query, base + at * 4u, whole, scores[mine * SCORES + at])));
            }
        }
        #{AGREE_LARGEST}
        if attempt == 1u {
            reference = largest;
        }
        total = 0.0;
        var too_large = false;
        #{FORGET}
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
            var larger = LEAST;
            #{LIMIT}
            #{AGREE}
            if reference == LEAST {
                reference = larger;
            }
            too_large = too_large || larger > reference + MARGIN;
            #{WEIGH}
            workgroupBarrier();
            #{GATHER}
        }
        if too_large {
            repeats[0] = 1u;
        }
        if workgroupUniformLoad(&repeats[0]) == 0u {
            break;
        }
    }
    #{AGREE_TOTAL}
    // A query that has seen nothing gets zeros; its weights would be zero in the gradient, too.
    let nothing = total == 0.0;
    inverses[mine] = select(1.0 / total, 0.0, nothing);
    if side == 0u && query < constants.queries {
        logs[(row * constants.queries + query) * HEADS + head] = select(reference + log(total), -LEAST, nothing);
    }
    #{STORE}
}
