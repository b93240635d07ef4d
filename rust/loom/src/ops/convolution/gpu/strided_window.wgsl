// The elements of `source` that windows with a stride join to destination pixels, from outputs
// back to inputs: only some taps of a pixel meet a whole output position.

// The image's first element, and the pixel counted from the start of the border.
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

fn window_of(pixel: u32) -> Window {
    let image = pixel / PIXELS;
    let inside = pixel % PIXELS;
    let plane = (image * SOURCE_CHANNELS + group_number() * GROUP_SOURCES) * SOURCE_PLANE;
    return Window(plane, inside / PIXELS_WIDTH + FIRST_ROW, inside % PIXELS_WIDTH + FIRST_COLUMN);
}

fn tap_of(channel: u32, tap: u32) -> Tap {
    return Tap(channel * SOURCE_PLANE, tap / KERNEL_WIDTH * TAP_DOWN, tap % KERNEL_WIDTH * TAP_RIGHT);
}

fn found(window: Window, tap: Tap) -> Found {
    // A tap further than the pixel wraps around to a row or column that no image has.
    let down = window.row - tap.row;
    let right = window.column - tap.column;
    let row = down / STRIDE_DOWN;
    let column = right / STRIDE_RIGHT;
    let whole = down % STRIDE_DOWN == 0u && right % STRIDE_RIGHT == 0u;
    let inside = whole && row < SOURCE_HEIGHT && column < SOURCE_WIDTH;
    return Found(select(0u, window.at + tap.at + row * SOURCE_WIDTH + column, inside), inside);
}
