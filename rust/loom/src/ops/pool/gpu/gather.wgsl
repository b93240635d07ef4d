// What an element of dx gets from the windows above it.
fn gathered(pixel: u32) -> f32 {
    let volume = pixel / INPUTS * OUTPUTS;
    let at = pixel % INPUTS;
    let place = place_of(at, INPUT_DEPTH, INPUT_HEIGHT, INPUT_WIDTH);
    // Counted from the start of the border.
    let far = place + vec3<u32>(PADDING_BACK, PADDING_DOWN, PADDING_RIGHT);
    var sum = 0.0;
    // Later elements of the kernel belong to earlier windows.
    for (var h = KERNEL_DEPTH; h > 0u; h--) {
        // What lies before the first window wraps around to planes and rows that no volume has.
        let behind = far.x - (h - 1u) * DILATION_BACK;
        let plane = behind / STRIDE_BACK;
        let there = behind % STRIDE_BACK == 0u && plane < OUTPUT_DEPTH;
        for (var i = KERNEL_HEIGHT; i > 0u; i--) {
            let below = far.y - (i - 1u) * DILATION_DOWN;
            let row = below / STRIDE_DOWN;
            for (var j = KERNEL_WIDTH; j > 0u; j--) {
                let beyond = far.z - (j - 1u) * DILATION_RIGHT;
                let column = beyond / STRIDE_RIGHT;
                let whole = there && below % STRIDE_DOWN == 0u && beyond % STRIDE_RIGHT == 0u;
                if (whole && row < OUTPUT_HEIGHT && column < OUTPUT_WIDTH) {
                    let window = (plane * OUTPUT_HEIGHT + row) * OUTPUT_WIDTH + column;
                    sum += share(volume + window, vec3<u32>(plane, row, column), at);
                }
            }
        }
    }
    return sum;
}
