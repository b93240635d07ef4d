
// Where a tap's element is; outside the image, the first element stands for it, which is there to
// be read: loads without a branch can be under way side by side.
struct Found {
    at: u32,
    inside: bool,
}

fn element(window: Window, tap: Tap) -> f32 {
    let found = found(window, tap);
    return select(0.0, source[found.at], found.inside);
}

// The number of the group among the products that are made side by side.
fn group_number() -> u32 {
    return #{GROUP};
}
