// A query gathers values: the keys of a span are shared out over the threads of a workgroup. Subgroups exchange what
// they have found in registers, so that there are two barriers in all; see few_exchanging.rs.
#{VECTORS}

#{SIGHT}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;
const SUBGROUPS: u32 = THREADS / SUBGROUP;
// Threads that each gather a part of the keys for one unit of the result.
const RANKS: u32 = THREADS / UNITS;
// Keys that are scored at a time, each by a team.
const TEAMS: u32 = THREADS / TEAM;

var<workgroup> scores: array<f32, SPAN>;
var<workgroup> maxima: array<f32, SUBGROUPS>;
var<workgroup> totals: array<f32, PARTS>;
var<workgroup> gathered: array<vec4<f32>, PARTS * UNITS>;

fn main(number: u32, subgroup: u32, lane: u32) {
    if number >= constants.groups {
        return;
    }
    // By what the device says, not by the order in which it numbers threads: a team must share a subgroup.
    let thread = subgroup * SUBGROUP + lane;
    let span = number % constants.spans;
    let query = number / constants.spans % constants.queries;
    let head = number / constants.spans / constants.queries % HEADS;
    let row = number / constants.spans / constants.queries / HEADS;
    let place = position(row) + query;
    let mine = (row * constants.queries + query) * HEADS + head;
    let first = max(first_key(row, place), span * SPAN);
    let count = max(first, min(last_key(row, place), (span + 1u) * SPAN)) - first;
    // The first of the keys, and of the values.
    let others = (sequence(row) * constants.keys + first) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
    let mate = thread % TEAM;
    #{ASKED}
    var largest = LEAST;
    for (var scored = 0u; scored < count; scored += KEYS * TEAMS) {
        #{SCORE}
    }
    largest = subgroupMax(largest);
    if lane == 0u {
        maxima[subgroup] = largest;
    }
    let unit = thread % UNITS;
    let rank = thread / UNITS;
    // Who gathers nothing stands behind all keys.
    var j = select(count, rank, rank < RANKS);
    // Values come in while the others still score.
    #{VALUES}
    if count > 0u {
        #{LOAD}
    }
    workgroupBarrier();
    largest = maxima[0];
    for (var i = 1u; i < SUBGROUPS; i += 1u) {
        largest = max(largest, maxima[i]);
    }
    var total = 0.0;
    var y = vec4<f32>();
    // Loops are as long for all threads: what they exchange asks for all of them.
    for (var loaded = AT_ONCE * RANKS; loaded < count + AT_ONCE * RANKS; loaded += AT_ONCE * RANKS) {
        #{GATHER}
        j += AT_ONCE * RANKS;
        if loaded < count {
            #{LOAD}
        }
    }
    #{JOIN}
    workgroupBarrier();
    if thread < UNITS {
        var found = gathered[thread];
        total = totals[0];
        for (var i = 1u; i < PARTS; i += 1u) {
            found += gathered[i * UNITS + thread];
            total += totals[i];
        }
        let nothing = total == 0.0;
        #{STORE}
    }
}
