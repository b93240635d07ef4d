// dW = (dW +) the parts' sums, in order: SLICES threads share the parts of an element. After the
// weight's elements come the bias's, where there are any.

// Elements of a workgroup.
const RUN: u32 = THREADS / SLICES;
var<workgroup> sums: array<f32, THREADS>;

fn main(group: u32, thread: u32) {
    let element = group * RUN + thread % RUN;
    var sum = 0.0;
    if (element < constants.elements) {
        for (var part = thread / RUN; part < constants.parts; part += SLICES) {
            sum += partials[part * constants.elements + element];
        }
    }
    sums[thread] = sum;
    workgroupBarrier();
    if (thread < RUN && element < constants.elements) {
        let in_bias = element >= constants.weights;
        let at = select(constants.weight + element, constants.bias + element - constants.weights, in_bias);
        var total = #{BEFORE};
        for (var slice = 0u; slice < SLICES; slice++) {
            total += sums[slice * RUN + thread];
        }
        destination[at] = total;
    }
}
