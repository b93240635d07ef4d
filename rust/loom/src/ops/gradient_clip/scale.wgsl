// Multiplies a part of a gradient by the factor; a factor of 1 leaves the memory alone. What lies beyond
// the last element in its unit of four is nobody's.
fn main(i: u32) {
    let factor = clip[1];
    if i < constants.units && factor != 1.0 {
        gradient[i] *= factor;
    }
}
