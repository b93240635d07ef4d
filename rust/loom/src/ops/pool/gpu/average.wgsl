// The mean of each window, summed in four lanes.

fn mean_of(window: u32) -> f32 {
    let volume = window / OUTPUTS * INPUTS;
    let place = place_of(window % OUTPUTS, OUTPUT_DEPTH, OUTPUT_HEIGHT, OUTPUT_WIDTH);
    var sum = vec4<f32>();
    for (var back = 0u; back < KERNEL_DEPTH; back++) {
        // What lies before the volume wraps around to large numbers.
        let plane = place.x * STRIDE_BACK + back * DILATION_BACK - PADDING_BACK;
        for (var down = 0u; down < KERNEL_HEIGHT; down++) {
            let row = place.y * STRIDE_DOWN + down * DILATION_DOWN - PADDING_DOWN;
            for (var right = 0u; right < KERNEL_WIDTH; right += 4u) {
                sum += vec4<f32>(
                    element(volume, plane, row, place.z, right),
                    element(volume, plane, row, place.z, right + 1u),
                    element(volume, plane, row, place.z, right + 2u),
                    element(volume, plane, row, place.z, right + 3u),
                );
            }
        }
    }
    return (sum.x + sum.y + sum.z + sum.w) / elements(place);
}

fn element(volume: u32, plane: u32, row: u32, left: u32, right: u32) -> f32 {
    let column = left * STRIDE_RIGHT + right * DILATION_RIGHT - PADDING_RIGHT;
    var value = 0.0;
    if (right < KERNEL_WIDTH && plane < INPUT_DEPTH && row < INPUT_HEIGHT && column < INPUT_WIDTH) {
        value = x[volume + (plane * INPUT_HEIGHT + row) * INPUT_WIDTH + column];
    }
    return value;
}
