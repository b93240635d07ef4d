// What an element of dx gets from the one window above it, where windows do not overlap.
fn gathered(pixel: u32) -> f32 {
    let volume = pixel / INPUTS * OUTPUTS;
    let at = pixel % INPUTS;
    let strides = vec3<u32>(STRIDE_BACK, STRIDE_DOWN, STRIDE_RIGHT);
    let place = place_of(at, INPUT_DEPTH, INPUT_HEIGHT, INPUT_WIDTH);
    let far = place + vec3<u32>(PADDING_BACK, PADDING_DOWN, PADDING_RIGHT);
    let window = far / strides;
    let under = far % strides < vec3<u32>(KERNEL_DEPTH, KERNEL_HEIGHT, KERNEL_WIDTH);
    let inside = all(under & (window < vec3<u32>(OUTPUT_DEPTH, OUTPUT_HEIGHT, OUTPUT_WIDTH)));
    // Where there is none, the first window is read in its place: loads without a branch can be
    // under way side by side.
    let number = volume + (window.x * OUTPUT_HEIGHT + window.y) * OUTPUT_WIDTH + window.z;
    return select(0.0, share(select(0u, number, inside), window, at), inside);
}
