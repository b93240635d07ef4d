// The gradient of a weight that was divided by its largest singular value.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let row = i / constants.columns;
    let column = i % constants.columns;
    let c = (working[row] - sizes[0] * v[row]) * (1.0 / max(sizes[1], LEAST));
    let turned = v[row] * next[column] + c * u[column];
    dw[i] = dy[i] * (1.0 / max(sizes[0], LEAST)) - turned * factor[0];
}
