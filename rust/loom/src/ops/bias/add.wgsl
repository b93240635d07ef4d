// z = x + bias[channel], in units of one element or of four that lie side by side.
fn main(i: u32) {
    if i < constants.units {
        z[i] = x[i] + #{UNIT}(bias[i / constants.inner % constants.channels]);
    }
}
