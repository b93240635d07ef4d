// One side of the corner at x = 0 or the other, in units of one element or of four that lie side by side.
fn main(i: u32) {
    if i < constants.units {
        result[i] = select(#{BELOW}, #{ABOVE}, x[i] > #{UNIT}(0.0));
    }
}
