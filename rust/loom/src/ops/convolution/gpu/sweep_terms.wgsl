fn load_b(k: u32, pixel: u32, window: Window) -> f32 {
    return element(window, tap_of(k % GROUP_SOURCES, k / GROUP_SOURCES));
}
