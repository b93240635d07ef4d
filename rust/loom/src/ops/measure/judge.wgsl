// Makes each layer's figures of the collected sums, and decides what becomes of the step; see judge.rs.

var<workgroup> gaps: array<f32, THREADS>;
var<workgroup> finite: array<u32, THREADS>;

fn in_one_number(first: u32) -> f32 {
    let count = memory[first + 4u];
    if count == 0.0 {
        // Nothing was measured: not a number, of the kind that every driver keeps.
        return bitcast<f32>(0x7fc00000u | u32(count));
    }
    let mean = memory[first + 3u] / count;
    return select(sqrt(mean), mean, SQUARED);
}

// Brings the sums of this step into the memory, a thread a number.
fn collect(thread: u32) {
    let part = thread % SUMS;
    var value = 0.0;
    var place = 0u;
    switch thread / SUMS {
        #{CASES}
        default: {
            return;
        }
    }
    memory[place + part] = value;
}

fn main(thread: u32) {
    if COLLECTS {
        collect(thread);
        storageBarrier();
    }
    if !FORWARD {
        for (var layer = thread; layer < ROWS; layer += THREADS) {
            memory[FIRST_FIGURE + FIGURES * layer + 6u] = in_one_number(FIRST_RECONSTRUCTION + 5u * layer);
        }
        if thread == 0u {
            memory[ACTION] = 1.0;
        }
        return;
    }
    var good = true;
    for (var row = thread; row < constants.rows; row += THREADS) {
        good = good && is_finite(losses[row]);
    }
    var total = 0.0;
    for (var layer = thread; layer < ROWS; layer += THREADS) {
        let first = FIRST_LAYER + 5u * layer;
        let gap = in_one_number(first);
        let squares = sqrt(memory[first]) * sqrt(memory[first + 2u]);
        var alignment = 0.5;
        if squares != 0.0 {
            alignment = 0.5 + 0.5 * clamp(memory[first + 1u] / squares, -1.0, 1.0);
        }
        let input = sqrt(memory[norms[layer].x]);
        let output = sqrt(memory[norms[layer].y]);
        var gain = 0.0;
        if input != 0.0 {
            gain = output / input;
        }
        var budget = BUDGET_SCALE * gain;
        var gate = 1.0;
        if GATED {
            budget = BUDGET_SCALE * alignment;
            gate = select(0.5 + 0.5 * budget, -1.0, budget < LEAST_ALIGNMENT);
        }
        let figure = FIRST_FIGURE + FIGURES * layer;
        memory[figure] = gap;
        memory[figure + 1u] = alignment;
        memory[figure + 2u] = gain;
        memory[figure + 3u] = budget;
        memory[figure + 4u] = gate;
        memory[figure + 5u] = in_one_number(FIRST_CELL + 5u * layer);
        memory[figure + 6u] = in_one_number(FIRST_RECONSTRUCTION + 5u * layer);
        // Layers inside others are shown, and judged by nobody.
        if layer < LAYERS {
            total += gap;
            good = good && is_finite(gap) && is_finite(gain);
        }
    }
    gaps[thread] = total;
    finite[thread] = select(0u, 1u, good);
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            gaps[thread] += gaps[thread + half];
            finite[thread] &= finite[thread + half];
        }
        workgroupBarrier();
    }
    if thread != 0u {
        return;
    }
    let is_good = finite[0] == 1u && #{NORM_IS_FINITE};
    let mean = gaps[0] / f32(LAYERS);
    let previous = memory[PREVIOUS_GAP];
    let known = memory[HAS_PREVIOUS] != 0.0 && previous > 0.0;
    var growth = 1.0;
    if known {
        growth = mean / previous;
    }
    // For a step that is judged again.
    memory[RATE_BEFORE] = memory[RATE_FACTOR];
    memory[GAP_BEFORE] = previous;
    memory[HAD_PREVIOUS] = memory[HAS_PREVIOUS];
    memory[HAD_SNAPSHOT] = memory[HAS_SNAPSHOT];
    memory[MEAN_GAP] = mean;
    memory[GROWTH] = growth;
    memory[JUDGED] += 1.0;
    let grown = known && mean > GAP_THRESHOLD && growth > EXPLOSION_LIMIT && memory[APPLIED] != 0.0;
    if DETECTS && (!is_good || grown) {
        memory[ACTION] = select(0.0, 2.0, memory[HAS_SNAPSHOT] != 0.0);
        memory[EXPLOSIONS] += 1.0;
        memory[RATE_FACTOR] *= RECOVERY_RATE;
        memory[APPLIED] = 0.0;
        return;
    }
    memory[ACTION] = 1.0;
    memory[RATE_FACTOR] = min(memory[RATE_FACTOR] * CALM_GROWTH, 1.0);
    memory[PREVIOUS_GAP] = mean;
    memory[HAS_PREVIOUS] = 1.0;
    memory[HAS_SNAPSHOT] = 1.0;
    memory[APPLIED] = 1.0;
}
