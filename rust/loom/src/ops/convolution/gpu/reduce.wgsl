// dW = (dW +) the parts' sums, in order: SLICES threads share the parts of an element.
@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read_write> destination: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    parts: u32,
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
        var total = #{BEFORE};
        for (var slice = 0u; slice < SLICES; slice++) {
            total += sums[slice * RUN + thread];
        }
        destination[element] = total;
    }
}
