// As a product: windows (taps and input channels, pixels) by gradients (pixels, output channels).

// Of four pixels side by side, or one.
struct Pixels {
    at: u32,
    inside: bool,
}

fn place_b(column: u32) -> u32 {
    return (batch * GROUP_OUTPUTS + min(column, GROUP_OUTPUTS - 1u)) * PIXELS;
}

fn start_b(k: u32, last: u32, plane: u32) -> Pixels {
    let inside = k < last;
    return Pixels(select(0u, k / PIXELS * (OUTPUTS * PIXELS) + k % PIXELS, inside), inside);
}

fn load_b(pixels: Pixels, plane: u32) -> #{GRADIENT} {
    return select(#{GRADIENT}(), gradient[(pixels.at + plane) / GRADIENT_WIDTH], pixels.inside);
}
