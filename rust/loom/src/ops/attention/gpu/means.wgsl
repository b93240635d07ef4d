// The sum of dy y over each query's head.
#{VECTORS}

fn main(query: u32) {
    if query >= constants.queries {
        return;
    }
    var products = vec4<f32>();
    for (var unit = 0u; unit < UNITS; unit += 1u) {
        products = fma(load_dy(query, unit, true), load_y(query, unit, true), products);
    }
    means[query] = products.x + products.y + (products.z + products.w);
}
