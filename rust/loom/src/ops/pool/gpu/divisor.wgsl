// Elements that the sum of a window is divided by: all, or those that do not lie on the border.
fn elements(window: vec3<u32>) -> f32 {
    if (COUNT_PADDING) {
        return f32(KERNEL_DEPTH * KERNEL_HEIGHT * KERNEL_WIDTH);
    }
    var back = 1u;
    if (KERNEL_DEPTH > 1u || PADDING_BACK > 0u) {
        back = inside(window.x * STRIDE_BACK, PADDING_BACK, KERNEL_DEPTH, DILATION_BACK, INPUT_DEPTH);
    }
    let down = inside(window.y * STRIDE_DOWN, PADDING_DOWN, KERNEL_HEIGHT, DILATION_DOWN, INPUT_HEIGHT);
    let right = inside(window.z * STRIDE_RIGHT, PADDING_RIGHT, KERNEL_WIDTH, DILATION_RIGHT, INPUT_WIDTH);
    return f32(max(back * down * right, 1u));
}

// How many elements of a window that starts here, counted from the start of the border, lie on the input.
fn inside(start: u32, border: u32, kernel: u32, dilation: u32, extent: u32) -> u32 {
    let before = border - min(start, border);
    let first = min((before + dilation - 1u) / dilation, kernel);
    let room = border + extent - min(start, border + extent);
    let end = min((room + dilation - 1u) / dilation, kernel);
    return end - min(first, end);
}
