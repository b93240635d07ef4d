// Momentum, and what is to be orthogonalised, with its shorter side for rows.

fn flush(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & 0x7f800000u) == 0u);
}

fn main(i: u32) {
    if i >= constants.rows * constants.columns {
        return;
    }
    let row = i / constants.columns;
    let column = i % constants.columns;
    let place = constants.first + row * constants.stride + column;
    let g = gradient[place];
    let made = flush(fma(g - mean[place], NEW, mean[place]));
    next_mean[place] = made;
    let at = select(i, column * constants.rows + row, TURNED);
    scratch[at] = select(made, fma(made - g, MOMENTUM, g), NESTEROV);
}
