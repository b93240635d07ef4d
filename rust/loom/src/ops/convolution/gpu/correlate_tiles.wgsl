// As a product: windows (input channels and taps, pixels) by gradients (pixels, output channels).
fn place_a(row: u32) -> Tap {
    return tap_of(row / TAPS, row % TAPS);
}

fn load_a(row: u32, k: u32, tap: Tap) -> f32 {
    return element(window_of(k), tap);
}

fn place_b(column: u32) -> u32 {
    return (batch * GROUP_OUTPUTS + column) * PIXELS;
}

fn load_b(k: u32, column: u32, plane: u32) -> #{GRADIENT} {
    return gradient[(k / PIXELS * (OUTPUTS * PIXELS) + plane + k % PIXELS) / GRADIENT_WIDTH];
}
