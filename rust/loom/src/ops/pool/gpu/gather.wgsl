// What an element of dx gets from the windows above it.
fn gathered(pixel: u32) -> f32 {
    let plane = pixel / INPUTS * OUTPUTS;
    let at = pixel % INPUTS;
    let down = at / INPUT_WIDTH + PADDING_DOWN;
    let right = at % INPUT_WIDTH + PADDING_RIGHT;
    var sum = 0.0;
    // Later elements of the kernel belong to earlier windows.
    for (var i = KERNEL_HEIGHT; i > 0u; i--) {
        // What lies before the first window wraps around to rows that no plane has.
        let below = down - (i - 1u) * DILATION_DOWN;
        let row = below / STRIDE_DOWN;
        for (var j = KERNEL_WIDTH; j > 0u; j--) {
            let beyond = right - (j - 1u) * DILATION_RIGHT;
            let column = beyond / STRIDE_RIGHT;
            let whole = below % STRIDE_DOWN == 0u && beyond % STRIDE_RIGHT == 0u;
            if (whole && row < OUTPUT_HEIGHT && column < OUTPUT_WIDTH) {
                sum += share(plane + row * OUTPUT_WIDTH + column, row, column, at);
            }
        }
    }
    return sum;
}
