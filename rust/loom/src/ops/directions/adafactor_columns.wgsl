fn main(column: u32) {
    if column >= constants.columns {
        return;
    }
    var sum = 0.0;
    for (var row = 0u; row < constants.rows; row += 1u) {
        let g = gradient[row * constants.columns + column];
        sum += g * g + EPSILON;
    }
    let place = constants.rows + column;
    next[place] = averaged(square[place], sum / f32(constants.rows));
}
