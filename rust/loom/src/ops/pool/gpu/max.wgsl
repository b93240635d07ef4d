// The largest element under each window and its index within the volume; ties go to the first, a
// NaN wins, the border never does.

struct Best {
    value: f32,
    index: i32,
}

fn best_of(window: u32) -> Best {
    let volume = window / OUTPUTS * INPUTS;
    // Places count from the start of the border.
    let place = place_of(window % OUTPUTS, OUTPUT_DEPTH, OUTPUT_HEIGHT, OUTPUT_WIDTH);
    let start = place * vec3<u32>(STRIDE_BACK, STRIDE_DOWN, STRIDE_RIGHT);
    // The index is -1 until there is an element, however small.
    var best = Best(bitcast<f32>(0xff800000u), -1);
    for (var back = 0u; back < KERNEL_DEPTH; back++) {
        // What lies before the volume wraps around to large numbers.
        let plane = start.x + back * DILATION_BACK - PADDING_BACK;
        for (var down = 0u; down < KERNEL_HEIGHT; down++) {
            for (var right = 0u; right < KERNEL_WIDTH; right++) {
                let row = start.y + down * DILATION_DOWN - PADDING_DOWN;
                let column = start.z + right * DILATION_RIGHT - PADDING_RIGHT;
                if (plane < INPUT_DEPTH && row < INPUT_HEIGHT && column < INPUT_WIDTH) {
                    let at = (plane * INPUT_HEIGHT + row) * INPUT_WIDTH + column;
                    let value = x[volume + at];
                    if (best.index < 0 || is_nan(value) || (value > best.value && !is_nan(best.value))) {
                        best = Best(value, i32(at));
                    }
                }
            }
        }
    }
    return best;
}

