
// A tile's rows are channels of one tap, which a pixel looks for once.
struct Place {
    tap: Tap,
    channel: u32,
}

fn place_a(row: u32) -> Place {
    return Place(tap_of(0u, row / GROUP_SOURCES), row % GROUP_SOURCES * SOURCE_PLANE);
}

fn start_a(k: u32, last: u32, place: Place) -> Found {
    let found = found(window_of(k), place.tap);
    let inside = found.inside && k < last;
    return Found(select(0u, found.at, inside), inside);
}

fn load_a(found: Found, place: Place) -> f32 {
    return select(0.0, source[found.at + place.channel], found.inside);
}
