fn main(i: u32) {
    if i >= constants.rows * constants.columns {
        return;
    }
    let row = i / constants.columns;
    let column = i % constants.columns;
    let at = select(i, column * constants.rows + row, TURNED);
    direction[constants.first + row * constants.stride + column] = scratch[at] * SCALE;
}
