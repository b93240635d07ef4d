// The norm of each parameter over that of its directions; 1 where one of them is nothing.

fn main(i: u32) {
    if i >= constants.parameters {
        return;
    }
    var sums = vec2<f32>();
    for (var share = starts[i]; share < starts[i + 1u]; share += 1u) {
        sums += squares[share];
    }
    let norms = sqrt(sums);
    ratios[i] = select(1.0, norms.x / norms.y, norms.x > 0.0 && norms.y > 0.0);
}
