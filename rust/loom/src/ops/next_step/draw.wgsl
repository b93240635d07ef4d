// Draws a class by its score: a workgroup a row.
//
// What is left out lies beyond a limit of a key: unlikelier than the last that `top_k` or `top_p` keeps, or further from
// the expected surprise. A limit is found by narrowing it down, eight cuts at a time, for each of which all threads add
// up what lies within it: no class is sorted, and all sums have one order.

const PER_PASS: u32 = 8u;
const ALL: u32 = 0xffffffffu;
// The key of a score that is infinitely low, the last one.
const LAST_KEY: u32 = 0xff800000u;

// What keys are, and what is added up.
const BY_SCORE: u32 = 0u;
const BY_SCORE_COUNTED: u32 = 1u;
const BY_SURPRISE: u32 = 2u;
const EQUALS_BY_PLACE: u32 = 3u;

var<workgroup> cells: array<vec4<f32>, THREADS>;
var<workgroup> others: array<vec4<f32>, THREADS>;
var<workgroup> first_place: atomic<u32>;
var<workgroup> last_place: atomic<u32>;
var<workgroup> is_known: atomic<u32>;
var<workgroup> drawn: u32;

// Where the row's scores lie.
var<private> base: u32;
var<private> largest: f32;
// The last key by score that is left, and up to which class where several have it.
var<private> limit: u32;
var<private> last_equal: u32;
var<private> least_weight: f32;
var<private> expected: f32;
var<private> furthest: u32;

struct Sampling {
    temperature: f32,
    top_k: f32,
    top_p: f32,
    min_p: f32,
    typical: f32,
    repetition_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
}

fn sampling_of(row: u32) -> Sampling {
    let at = row * SETTINGS;
    return Sampling(
        sampling[at], sampling[at + 1u], sampling[at + 2u], sampling[at + 3u], sampling[at + 4u],
        sampling[at + 5u], sampling[at + 6u], sampling[at + 7u]
    );
}

// Larger scores have smaller keys.
fn key_of(score: f32) -> u32 {
    let bits = bitcast<u32>(score);
    return select(~bits & 0x7fffffffu, bits, (bits & 0x80000000u) != 0u);
}

fn weight_of(score: f32) -> f32 {
    return exp(score - largest);
}

fn is_left(choice: u32, score: f32) -> bool {
    let key = key_of(score);
    if key > limit || (key == limit && choice > last_equal) {
        return false;
    }
    if least_weight > 0.0 && weight_of(score) < least_weight {
        return false;
    }
    return furthest == ALL || bitcast<u32>(abs(score - largest - expected)) <= furthest;
}

// The sums over all threads, handed to all of them.
fn joined(thread: u32, one: vec4<f32>, other: vec4<f32>) -> array<vec4<f32>, 2> {
    cells[thread] = one;
    others[thread] = other;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            cells[thread] += cells[thread + half];
            others[thread] += others[thread + half];
        }
        workgroupBarrier();
    }
    let sums = array<vec4<f32>, 2>(cells[0], others[0]);
    workgroupBarrier();
    return sums;
}

// The largest over all threads.
fn joined_largest(thread: u32, value: f32) -> f32 {
    cells[thread].x = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            cells[thread].x = max(cells[thread].x, cells[thread + half].x);
        }
        workgroupBarrier();
    }
    let found = cells[0].x;
    workgroupBarrier();
    return found;
}

fn joined_sum(thread: u32, value: f32) -> f32 {
    return joined(thread, vec4<f32>(value, 0.0, 0.0, 0.0), vec4<f32>())[0].x;
}

// The smallest key from `low` to `high` up to which what is left adds up to a target; `high` where nothing does.
fn narrowed(thread: u32, what: u32, from_key: u32, to_key: u32, wanted: f32) -> u32 {
    var low = from_key;
    var high = to_key;
    while low < high {
        // The last cut is short of `high`, so that something is always decided.
        let stride = (high - low) / (PER_PASS + 1u) + 1u;
        var one = vec4<f32>();
        var other = vec4<f32>();
        for (var i = thread; i < constants.classes; i += THREADS) {
            let score = warmed[base + i];
            var key = key_of(score);
            var counts_here = true;
            if what == BY_SURPRISE {
                key = bitcast<u32>(abs(score - largest - expected));
            } else if what == EQUALS_BY_PLACE {
                counts_here = key == limit;
                key = i;
            }
            // Nearly all lie beyond what is looked at, and cost no more than this.
            if key > high || !counts_here || !is_left(i, score) {
                continue;
            }
            let amount = select(weight_of(score), 1.0, what == BY_SCORE_COUNTED || what == EQUALS_BY_PLACE);
            // The first cut that has it; all after it do.
            let cut = select((key - low) / stride, 0u, key <= low);
            one += vec4<f32>(amount) * vec4<f32>(vec4<u32>(cut) <= vec4<u32>(0u, 1u, 2u, 3u));
            other += vec4<f32>(amount) * vec4<f32>(vec4<u32>(cut) <= vec4<u32>(4u, 5u, 6u, 7u));
        }
        let sums = joined(thread, one, other);
        // Cut number c has the keys below low + (c + 1) stride.
        var reached = PER_PASS;
        for (var c = PER_PASS; c > 0u; c -= 1u) {
            let sum = select(sums[1][(c - 1u) % 4u], sums[0][(c - 1u) % 4u], c <= 4u);
            if sum >= wanted {
                reached = c - 1u;
            }
        }
        let start = low + reached * stride;
        if reached < PER_PASS {
            high = min(high, start + (stride - 1u));
        }
        low = min(start, high);
    }
    return low;
}

fn keep(row: u32, choice: u32) {
    let at = min(steps[constants.step].position + constants.time, constants.capacity);
    chosen[row * (constants.capacity + 1u) + at] = f32(choice);
}

// Where what changes a class begins, in a row's list of such.
fn entry(row: u32, number: u32) -> u32 {
    return constants.rows + (number * constants.rows + row) * 3u;
}

// Takes note of a choice that all threads know.
fn count_choice(row: u32, thread: u32, entries: u32, choice: u32) {
    if thread == 0u {
        atomicStore(&is_known, 0u);
    }
    workgroupBarrier();
    for (var number = thread; number < entries; number += THREADS) {
        let at = entry(row, number);
        if u32(changes[at]) == choice {
            changes[at + 1u] = floor(changes[at + 1u]) + 1.0;
            atomicStore(&is_known, 1u);
        }
    }
    workgroupBarrier();
    if thread == 0u && atomicLoad(&is_known) == 0u {
        let at = entry(row, entries);
        changes[row] = f32(entries + 1u);
        changes[at] = f32(choice);
        changes[at + 1u] = 1.0;
        changes[at + 2u] = 0.0;
    }
}

fn main(row: u32, thread: u32) {
    if row >= constants.rows {
        return;
    }
    let wanted = sampling_of(row);
    let counted = wanted.repetition_penalty != 1.0 || wanted.frequency_penalty != 0.0
        || wanted.presence_penalty != 0.0;
    base = row * constants.classes;
    limit = ALL;
    last_equal = ALL;
    least_weight = 0.0;
    expected = 0.0;
    furthest = ALL;
    let entries = u32(changes[row]);
    // Scores after penalties and biases, and the first of the largest of them.
    var wrong = 0.0;
    var best = 0.0;
    var best_class = ALL;
    for (var i = thread; i < constants.classes; i += THREADS) {
        let score = y[base + i];
        if !is_finite(score) {
            wrong = 1.0;
        }
        if best_class == ALL || score > best {
            best = score;
            best_class = i;
        }
        warmed[base + i] = score;
    }
    storageBarrier();
    workgroupBarrier();
    for (var number = thread; number < entries; number += THREADS) {
        let at = entry(row, number);
        let i = base + u32(changes[at]);
        let count = changes[at + 1u];
        var score = y[i];
        if count > 0.0 {
            score = select(score * wanted.repetition_penalty, score / wanted.repetition_penalty, score > 0.0);
        }
        score -= wanted.frequency_penalty * floor(count);
        score -= select(0.0, wanted.presence_penalty, count >= 1.0);
        warmed[i] = score + changes[at + 2u];
    }
    storageBarrier();
    workgroupBarrier();
    if entries > 0u {
        best_class = ALL;
        for (var i = thread; i < constants.classes; i += THREADS) {
            let score = warmed[base + i];
            if best_class == ALL || score > best {
                best = score;
                best_class = i;
            }
        }
    }
    if thread == 0u {
        atomicStore(&first_place, ALL);
        atomicStore(&last_place, 0u);
    }
    if joined_largest(thread, wrong) != 0.0 {
        if thread == 0u {
            let at = min(steps[constants.step].position + constants.time, constants.capacity);
            chosen[row * (constants.capacity + 1u) + at] = -1.0;
        }
        return;
    }
    let top = joined_largest(thread, select(best, -3.4028234e38, best_class == ALL));
    largest = top / wanted.temperature;
    // At zero nothing is left to chance, and so near to it that the quotients are no numbers.
    if wanted.temperature == 0.0 || !is_finite(largest) {
        if best_class != ALL && best == top {
            atomicMin(&first_place, best_class);
        }
        workgroupBarrier();
        let choice = atomicLoad(&first_place);
        if thread == 0u {
            keep(row, choice);
        }
        if counted {
            count_choice(row, thread, entries, choice);
        }
        return;
    }
    for (var i = thread; i < constants.classes; i += THREADS) {
        warmed[base + i] /= wanted.temperature;
    }
    storageBarrier();
    workgroupBarrier();
    let first_key = key_of(largest);
    if wanted.top_k > 0.0 && wanted.top_k < f32(constants.classes) {
        limit = narrowed(thread, BY_SCORE_COUNTED, first_key, LAST_KEY, wanted.top_k);
    }
    if wanted.top_p < 1.0 {
        var sum = 0.0;
        for (var i = thread; i < constants.classes; i += THREADS) {
            let score = warmed[base + i];
            if is_left(i, score) {
                sum += weight_of(score);
            }
        }
        let target_weight = wanted.top_p * joined_sum(thread, sum);
        let found = narrowed(thread, BY_SCORE, first_key, min(limit, LAST_KEY), target_weight);
        limit = found;
        // Of those with the last score the first ones, as many as it takes.
        var before = 0.0;
        var equal = 0.0;
        var each = 0.0;
        for (var i = thread; i < constants.classes; i += THREADS) {
            let score = warmed[base + i];
            let key = key_of(score);
            if key < found {
                before += weight_of(score);
            } else if key == found {
                equal += 1.0;
                each = weight_of(score);
            }
        }
        let sums = joined(thread, vec4<f32>(before, equal, 0.0, 0.0), vec4<f32>())[0];
        let weight = joined_largest(thread, each);
        let needed = max(1.0, ceil((target_weight - sums.x) / weight));
        if needed < sums.y {
            last_equal = narrowed(thread, EQUALS_BY_PLACE, 0u, constants.classes - 1u, needed);
        }
    }
    least_weight = wanted.min_p;
    if wanted.typical < 1.0 {
        var sum = 0.0;
        var product = 0.0;
        for (var i = thread; i < constants.classes; i += THREADS) {
            let score = warmed[base + i];
            if is_left(i, score) {
                let weight = weight_of(score);
                sum += weight;
                // Nothing times what may be infinitely far.
                product += select(0.0, weight * (score - largest), weight > 0.0);
            }
        }
        let sums = joined(thread, vec4<f32>(sum, product, 0.0, 0.0), vec4<f32>())[0];
        expected = sums.y / sums.x;
        furthest = narrowed(thread, BY_SURPRISE, 0u, 0x7f800000u, wanted.typical * sums.x);
    }
    // Where the draw falls: each thread has the weight of neighbouring classes, and all know that of those before.
    let run = (constants.classes + THREADS - 1u) / THREADS;
    let start = min(thread * run, constants.classes);
    let end = min(start + run, constants.classes);
    var own = 0.0;
    for (var i = start; i < end; i += 1u) {
        let score = warmed[base + i];
        if is_left(i, score) {
            own += weight_of(score);
        }
    }
    cells[thread].x = own;
    workgroupBarrier();
    for (var reach = 1u; reach < THREADS; reach *= 2u) {
        var sum = cells[thread].x;
        if thread >= reach {
            sum = cells[thread - reach].x + sum;
        }
        workgroupBarrier();
        cells[thread].x = sum;
        workgroupBarrier();
    }
    let place = min(steps[constants.step].position + constants.time, constants.capacity);
    let aim = draws[row * (constants.capacity + 1u) + place] * cells[THREADS - 1u].x;
    if own > 0.0 {
        atomicMax(&last_place, thread);
        if aim < cells[thread].x {
            atomicMin(&first_place, thread);
        }
    }
    workgroupBarrier();
    let falls_on = atomicLoad(&first_place);
    if thread == select(falls_on, atomicLoad(&last_place), falls_on == ALL) {
        var sum = select(0.0, cells[max(thread, 1u) - 1u].x, thread > 0u);
        var choice = start;
        for (var i = start; i < end; i += 1u) {
            let weight = select(0.0, weight_of(warmed[base + i]), is_left(i, warmed[base + i]));
            if weight > 0.0 {
                sum += weight;
                choice = i;
                if aim < sum {
                    break;
                }
            }
        }
        keep(row, choice);
        drawn = choice;
    }
    if counted {
        workgroupBarrier();
        count_choice(row, thread, entries, drawn);
    }
}
