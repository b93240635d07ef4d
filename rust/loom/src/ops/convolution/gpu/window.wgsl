// The elements of `source` under the windows of destination pixels, where a tap lies at the same
// distance from the first one for every pixel.

// The first tap's place; rows and columns before the image wrap around to large numbers.
struct Window {
    at: u32,
    row: u32,
    column: u32,
}

// How far a tap of a channel is from the first one; distances back wrap around, too.
struct Tap {
    at: u32,
    row: u32,
    column: u32,
}

fn window_of(pixel: u32) -> Window {
    let image = pixel / PIXELS;
    let inside = pixel % PIXELS;
    let row = inside / PIXELS_WIDTH * STEP_DOWN + FIRST_ROW;
    let column = inside % PIXELS_WIDTH * STEP_RIGHT + FIRST_COLUMN;
    let plane = (image * SOURCE_CHANNELS + group_number() * GROUP_SOURCES) * SOURCE_PLANE;
    return Window(plane + row * SOURCE_WIDTH + column, row, column);
}

fn tap_of(channel: u32, tap: u32) -> Tap {
    let row = tap / KERNEL_WIDTH * TAP_DOWN;
    let column = tap % KERNEL_WIDTH * TAP_RIGHT;
    return Tap(channel * SOURCE_PLANE + row * SOURCE_WIDTH + column, row, column);
}

fn found(window: Window, tap: Tap) -> Found {
    let inside = window.row + tap.row < SOURCE_HEIGHT && window.column + tap.column < SOURCE_WIDTH;
    return Found(select(0u, window.at + tap.at, inside), inside);
}

// The place so many columns to the right of a tap's.
fn beside(tap: Tap, columns: u32) -> Tap {
    var moved = tap;
    moved.at += columns;
    moved.column += columns;
    return moved;
}
