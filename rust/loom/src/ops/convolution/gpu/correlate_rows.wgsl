
fn place_a(row: u32) -> Tap {
    let inside = min(row, GROUP_SOURCES * TAPS - 1u);
    return tap_of(inside % GROUP_SOURCES, inside / GROUP_SOURCES);
}

fn start_a(k: u32, last: u32, tap: Tap) -> Window {
    var window = window_of(k);
    // No tap finds anything from there.
    window.row = select(0x40000000u, window.row, k < last);
    return window;
}

fn load_a(window: Window, tap: Tap) -> f32 {
    return element(window, tap);
}
