// Fills with zeros what no operand will cover.
fn main(i: u32) {
    if (i < constants.count) {
        y[i] = 0u;
    }
}
