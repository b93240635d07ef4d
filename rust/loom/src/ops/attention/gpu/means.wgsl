// The sum of dy y over each query's head.
#{BINDINGS}

struct Constants {
    step: u32,
    // Of all rows and heads.
    queries: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let query = group_index(group, groups) * THREADS + thread;
    if query >= constants.queries {
        return;
    }
    var products = vec4<f32>();
    for (var unit = 0u; unit < UNITS; unit += 1u) {
        products = fma(load_dy(query, unit, true), load_y(query, unit, true), products);
    }
    means[query] = products.x + products.y + (products.z + products.w);
}
