// What an element of dx gets from the one window above it, where windows do not overlap.
fn gathered(pixel: u32) -> f32 {
    let plane = pixel / INPUTS * OUTPUTS;
    let at = pixel % INPUTS;
    let down = at / INPUT_WIDTH + PADDING_DOWN;
    let right = at % INPUT_WIDTH + PADDING_RIGHT;
    let row = down / STRIDE_DOWN;
    let column = right / STRIDE_RIGHT;
    let under = down % STRIDE_DOWN < KERNEL_HEIGHT && right % STRIDE_RIGHT < KERNEL_WIDTH;
    let inside = under && row < OUTPUT_HEIGHT && column < OUTPUT_WIDTH;
    // Where there is none, the first window is read in its place: loads without a branch can be
    // under way side by side.
    let window = select(0u, plane + row * OUTPUT_WIDTH + column, inside);
    return select(0.0, share(window, row, column, at), inside);
}
