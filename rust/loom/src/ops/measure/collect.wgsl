// Brings sums together in the memory of the measures, a thread a number.
fn main(thread: u32) {
    let part = thread % SUMS;
    var value = 0.0;
    var place = 0u;
    switch thread / SUMS {
        #{CASES}
        default: {
            return;
        }
    }
    memory[place + part] = select(value, memory[place + part] + value, constants.accumulate != 0u);
}
