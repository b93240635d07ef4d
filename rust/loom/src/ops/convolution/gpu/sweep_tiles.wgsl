// As a product: weights (channels of the group, terms) by windows (terms, pixels). A term is a
// tap and a source channel; channels are next to each other, so that a tile has few taps.
fn load_a(row: u32, k: u32) -> #{WEIGHT} {
    return weight(#{TERM});
}

fn place_b(pixel: u32) -> Window {
    return window_of(min(pixel, constants.pixels - 1u));
}
