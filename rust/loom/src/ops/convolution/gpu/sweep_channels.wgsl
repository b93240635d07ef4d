// Where a tile's terms are channels of one tap, a pixel looks for it once.
fn start_b(k: u32, window: Window) -> Found {
    return found(window, tap_of(k % GROUP_SOURCES, k / GROUP_SOURCES));
}

fn load_b(found: Found, k: u32) -> f32 {
    return select(0.0, source[found.at + k * SOURCE_PLANE], found.inside);
}
