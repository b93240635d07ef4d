// What each step of a row counts: a thread a row.
fn is_real(at: u32) -> bool {
    return #{REAL};
}

fn main(row: u32) {
    if row >= constants.rows {
        return;
    }
    let start = row * constants.steps;
    var count = 0u;
    var first = constants.steps;
    // One behind the last real step.
    var end = 0u;
    for (var step = 0u; step < constants.steps; step += 1u) {
        if is_real(start + step) {
            count += 1u;
            first = min(first, step);
            end = step + 1u;
        }
    }
    for (var step = 0u; step < constants.steps; step += 1u) {
        weights[start + step] = #{WEIGHT};
    }
}
