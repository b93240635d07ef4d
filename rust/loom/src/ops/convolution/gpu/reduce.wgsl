// dW = (dW +) the parts' sums, in order: SLICES threads share the parts of an element. After the
// weight's elements come the bias's, where there are any.
@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> destination: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    parts: u32,
    // How many of the elements are the weight's; where its own and the bias's go.
    weights: u32,
    weight: u32,
    bias: u32,
}
var<immediate> constants: Constants;

// Elements of a workgroup.
const RUN: u32 = THREADS / SLICES;
var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let element = group_index(id, count) * RUN + thread % RUN;
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
