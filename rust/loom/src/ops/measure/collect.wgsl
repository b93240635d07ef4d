// Brings sums together in the memory of the measures, a thread a number.
fn main(thread: u32) {
    let part = thread % (SUMS + 1u);
    var value = 0.0;
    var place = 0u;
    var elements = 0u;
    switch thread / (SUMS + 1u) {
        #{CASES}
        default: {
            return;
        }
    }
    if part == SUMS {
        value = f32(constants.rows) * f32(elements);
    }
    memory[place + part] = select(value, memory[place + part] + value, constants.accumulate != 0u);
}
