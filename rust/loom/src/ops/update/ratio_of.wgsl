
// What the rate of the weight at this place is multiplied by.
fn ratio_of(at: u32) -> f32 {
    var parameter = 0u;
    for (var p = 1u; p < STARTS; p += 1u) {
        if at >= starts[p] {
            parameter = p;
        }
    }
    return ratios[parameter];
}
