// Adam, number by number.

#{RULE}

fn main(i: u32) {
    if i >= constants.rows * constants.columns {
        return;
    }
    let now = steps[constants.step];
    let updates = f32((now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u);
    let seen1 = -precise_exp_m1(updates * LOG_BETA1);
    let seen2 = -precise_exp_m1(updates * LOG_BETA2);
    let place = constants.first + i / constants.columns * constants.stride + i % constants.columns;
    let g = gradient[place];
    let made = flush(fma(g - mean[place], NEW1, mean[place]));
    let squared = flush(square[place] * BETA2 + g * g * NEW2);
    next_mean[place] = made;
    next_square[place] = squared;
    direction[place] = made / seen1 / (sqrt(squared / seen2) + EPSILON);
}
