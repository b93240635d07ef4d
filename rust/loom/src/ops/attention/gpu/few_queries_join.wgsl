// Joins what spans of keys have given a query: a thread a unit of its result.
#{VECTORS}

// Every score that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

fn main(i: u32) {
    if i >= constants.units {
        return;
    }
    let mine = i / UNITS;
    let unit = i % UNITS;
    let at = mine * constants.spans;
    var largest = LEAST;
    for (var span = 0u; span < constants.spans; span += 1u) {
        largest = max(largest, scales[at + span].x);
    }
    var total = 0.0;
    var y = vec4<f32>();
    for (var span = 0u; span < constants.spans; span += 1u) {
        let sum = scales[at + span].y;
        if sum == 0.0 {
            continue;
        }
        let share = exp(scales[at + span].x - largest);
        total = fma(sum, share, total);
        y = fma(vec4<f32>(share), parts[(at + span) * UNITS + unit], y);
    }
    let nothing = total == 0.0;
    // A query that has seen nothing gets zeros.
    store_y(mine, unit, y * select(1.0 / total, 0.0, nothing));
    if unit == 0u {
        logs[mine] = select(largest + log(total), -LEAST, nothing);
    }
}
