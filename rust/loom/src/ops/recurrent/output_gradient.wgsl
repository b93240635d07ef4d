
// What the output's gradient adds to that of h after a step.
fn from_output(first: u32, step: u32, unit: u32) -> Lanes {
    let time = select(step, TIME - 1u - step, BACKWARD);
    if SEQUENCES {
        let gradient = load_dy(first, (time * DIRECTIONS + DIRECTION) * UNITS + unit);
        return select(Lanes(), gradient, is_real(first, time));
    }
    if step + 1u == TIME {
        return load_dy(first, DIRECTION * UNITS + unit);
    }
    return Lanes();
}
