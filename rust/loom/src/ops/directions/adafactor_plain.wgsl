fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let g = gradient[i];
    let mean = averaged(square[i], g * g + EPSILON);
    next[i] = mean;
    direction[i] = g / sqrt(mean);
}
