// A query gathers values: the keys of a span are shared out over the threads of a workgroup; see few_queries.rs.
#{VECTORS}

#{SIGHT}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;
// Threads that each gather a part of the keys for one unit of the result.
const LANES: u32 = THREADS / UNITS;
// Threads that tell the others what so many have found.
const TELLERS: u32 = THREADS / 16u;

var<workgroup> asked: array<vec4<f32>, UNITS>;
var<workgroup> partials: array<f32, CHUNK * TEAM>;
var<workgroup> weights: array<f32, CHUNK>;
var<workgroup> told: array<f32, THREADS>;
var<workgroup> gathered: array<vec4<f32>, THREADS>;

fn largest_of_all(thread: u32, mine: f32) -> f32 {
    told[thread] = mine;
    workgroupBarrier();
    var found = mine;
    if thread < TELLERS {
        for (var i = 1u; i < 16u; i += 1u) {
            found = max(found, told[thread + i * TELLERS]);
        }
        told[thread] = found;
    }
    workgroupBarrier();
    found = told[0];
    for (var i = 1u; i < TELLERS; i += 1u) {
        found = max(found, told[i]);
    }
    workgroupBarrier();
    return found;
}

fn sum_of_all(thread: u32, mine: f32) -> f32 {
    told[thread] = mine;
    workgroupBarrier();
    var found = mine;
    if thread < TELLERS {
        for (var i = 1u; i < 16u; i += 1u) {
            found += told[thread + i * TELLERS];
        }
        told[thread] = found;
    }
    workgroupBarrier();
    found = told[0];
    for (var i = 1u; i < TELLERS; i += 1u) {
        found += told[i];
    }
    return found;
}

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    let span = number % constants.spans;
    let query = number / constants.spans % constants.queries;
    let head = number / constants.spans / constants.queries % HEADS;
    let row = number / constants.spans / constants.queries / HEADS;
    let place = position(row) + query;
    let mine = (row * constants.queries + query) * HEADS + head;
    let others = sequence(row) * constants.keys * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
    for (var i = thread; i < UNITS; i += THREADS) {
        asked[i] = load_q(mine, i, true) * SCALE;
    }
    workgroupBarrier();
    let first = max(first_key(row, place), span * SPAN);
    let last = min(last_key(row, place), (span + 1u) * SPAN);
    let mate = thread % TEAM;
    let lane = thread / UNITS;
    let unit = thread % UNITS;
    var largest = LEAST;
    var total = 0.0;
    var y = vec4<f32>();
    for (var base = first; base < last; base += CHUNK) {
        let count = min(CHUNK, last - base);
        var larger = largest;
        // Threads beside each other read what lies beside each other: a team of them scores a key.
        for (var j = thread / TEAM; j < count; j += THREADS / TEAM) {
            let theirs = others + (base + j) * KEY_VALUE_HEADS;
            var products = vec4<f32>();
            #{SCORE}
            partials[j * TEAM + mate] = products.x + products.y + (products.z + products.w);
        }
        workgroupBarrier();
        for (var j = thread; j < count; j += THREADS) {
            var score = LEAST;
            if sees(row, place, base + j) {
                var sum = partials[j * TEAM];
                for (var i = 1u; i < TEAM; i += 1u) {
                    sum += partials[j * TEAM + i];
                }
                score = capped(biased(head, place, base + j, sum));
            }
            weights[j] = score;
            larger = max(larger, score);
        }
        larger = largest_of_all(thread, larger);
        let fade = exp(largest - larger);
        largest = larger;
        total *= fade;
        y *= fade;
        for (var j = thread; j < count; j += THREADS) {
            let score = weights[j];
            let weight = select(exp(score - larger), 0.0, score == LEAST);
            weights[j] = weight * kept(row, head, query, base + j);
            total += weight;
        }
        workgroupBarrier();
        if lane < LANES {
            // Several loads under way at a time; what is past the last key weighs nothing.
            for (var j = lane; j < count; j += AT_ONCE * LANES) {
                #{LOAD}
                #{GATHER}
            }
        }
        workgroupBarrier();
    }
    total = sum_of_all(thread, total);
    gathered[thread] = y;
    workgroupBarrier();
    var lanes = LANES;
    while lanes > 1u {
        let left = (lanes + 3u) / 4u;
        var sum = vec4<f32>();
        if lane < left {
            for (var i = lane; i < lanes; i += left) {
                sum += gathered[i * UNITS + unit];
            }
        }
        workgroupBarrier();
        if lane < left {
            gathered[lane * UNITS + unit] = sum;
        }
        workgroupBarrier();
        lanes = left;
    }
    let nothing = total == 0.0;
    if lane == 0u {
        let found = gathered[unit];
        #{STORE}
    }
}
