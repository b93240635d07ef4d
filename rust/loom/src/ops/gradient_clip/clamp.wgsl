// Clamps a part of a gradient to plus or minus the step's limit. What lies beyond the last element in
// its unit of four is nobody's.

// What stands for no limit.
const LARGEST: f32 = 3.4028234e38;

fn main(i: u32) {
    let clip_value = steps[constants.step].clip_value;
    if i < constants.units && clip_value < LARGEST {
        let limit = vec4<f32>(clip_value#{SCALE});
        let g = gradient[i];
        // A NaN stays one; by bits, as comparisons may be compiled as though there were none.
        let is_clamped = (bitcast<vec4<u32>>(g) & vec4<u32>(0x7fffffffu)) <= vec4<u32>(#{CLAMPED});
        gradient[i] = select(g, clamp(g, -limit, limit), is_clamped);
    }
}
