// The state before the first step, laid out as the steps read it; see gpu_stepwise.rs.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{RESUMED}
    #{INITIAL}
}

fn main(i: u32) {
    let lane = i % LANES;
    let unit = i / LANES % UNITS;
    let first = i / (LANES * UNITS) * LANES + lane;
    if first < constants.rows {
        next[i] = initial_state(first, unit);
        #{CELLS_BEFORE}
    }
}
