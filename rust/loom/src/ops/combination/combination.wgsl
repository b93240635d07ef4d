// y = c0 x0 + c1 x1 + ..., in units of four elements. Operands and results are values of a run, whose
// memory ends with whole units.
fn main(i: u32) {
    if i >= constants.units {
        return;
    }
    let now = steps[constants.step];
    var sum = #{SUM};
    if CLAMPS {
        // By bits: what min and max make of a NaN is each driver's own.
        let bounded = min(max(sum, vec4<f32>(LEAST)), vec4<f32>(GREATEST));
        let bits = bitcast<vec4<u32>>(sum) & vec4<u32>(0x7fffffffu);
        sum = select(bounded, sum, bits > vec4<u32>(0x7f800000u));
    }
    y[i] = sum;
}
