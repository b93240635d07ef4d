// Whether all of some values are finite.
fn main(i: u32) {
    if i < constants.elements && !is_finite(values[i]) {
        atomicMax(&found[0], 3u);
    }
}
