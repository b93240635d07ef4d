// The elements of `source` that windows with a stride join to destination pixels, from outputs back to inputs, for
// pixels of one residue: those that lie at the same place between two steps of the window. All taps of the window
// that lie at this place, too, meet whole output positions, and no other tap does. Products for the residues are
// made side by side.

struct Window {
    at: u32,
    row: u32,
    column: u32,
}

struct Tap {
    at: u32,
    row: u32,
    column: u32,
}

// The first row and the first column of the residue.
fn first_place() -> vec2<u32> {
    let residue = batch / GROUPS;
    return vec2<u32>(residue / STRIDE_RIGHT, residue % STRIDE_RIGHT);
}

fn window_of(pixel: u32) -> Window {
    let image = pixel / PIXELS;
    let inside = pixel % PIXELS;
    let first = first_place();
    let row = inside / PIXELS_WIDTH + (first.x + FIRST_ROW) / STRIDE_DOWN;
    let column = inside % PIXELS_WIDTH + (first.y + FIRST_COLUMN) / STRIDE_RIGHT;
    let plane = (image * SOURCE_CHANNELS + group_number() * GROUP_SOURCES) * SOURCE_PLANE;
    return Window(plane + row * SOURCE_WIDTH + column, row, column);
}

// The residue's taps side by side.
fn taps_right() -> u32 {
    return (KERNEL_WIDTH - (first_place().y + FIRST_COLUMN) % STRIDE_RIGHT + STRIDE_RIGHT - 1u) / STRIDE_RIGHT;
}

// The number in the whole window of one of the residue's taps.
fn whole_tap(tap: u32) -> u32 {
    let first = first_place();
    let row = tap / taps_right() * STRIDE_DOWN + (first.x + FIRST_ROW) % STRIDE_DOWN;
    let column = tap % taps_right() * STRIDE_RIGHT + (first.y + FIRST_COLUMN) % STRIDE_RIGHT;
    return row * KERNEL_WIDTH + column;
}

// How far a tap of a channel is from the first one; distances back wrap around.
fn tap_of(channel: u32, tap: u32) -> Tap {
    let row = 0u - tap / taps_right();
    let column = 0u - tap % taps_right();
    return Tap(channel * SOURCE_PLANE + row * SOURCE_WIDTH + column, row, column);
}

fn found(window: Window, tap: Tap) -> Found {
    let inside = window.row + tap.row < SOURCE_HEIGHT && window.column + tap.column < SOURCE_WIDTH;
    return Found(select(0u, window.at + tap.at, inside), inside);
}
