// The largest element under each window and its index within the plane; ties go to the first, a
// NaN wins, the border never does.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<#{STORED}>;
@group(0) @binding(2) var<storage, read_write> indices: array<#{INDEX}>;

struct Best {
    value: f32,
    index: i32,
}

fn best_of(window: u32) -> Best {
    let plane = window / OUTPUTS * INPUTS;
    let inside = window % OUTPUTS;
    // Places count from the start of the border.
    let top = inside / OUTPUT_WIDTH * STRIDE_DOWN;
    let left = inside % OUTPUT_WIDTH * STRIDE_RIGHT;
    // The index is -1 until there is an element, however small.
    var best = Best(bitcast<f32>(0xff800000u), -1);
    for (var down = 0u; down < KERNEL_HEIGHT; down++) {
        for (var right = 0u; right < KERNEL_WIDTH; right++) {
            // What lies before the plane wraps around to large numbers.
            let row = top + down * DILATION_DOWN - PADDING_DOWN;
            let column = left + right * DILATION_RIGHT - PADDING_RIGHT;
            if (row < INPUT_HEIGHT && column < INPUT_WIDTH) {
                let at = row * INPUT_WIDTH + column;
                let value = x[plane + at];
                if (best.index < 0 || is_nan(value) || (value > best.value && !is_nan(best.value))) {
                    best = Best(value, i32(at));
                }
            }
        }
    }
    return best;
}

