// The elements of `source` that windows with a stride join to a destination volume's elements, from
// outputs back to inputs: only some taps of an element meet a whole output position.

// The volume's first element, and the destination's place counted from the start of the border.
struct Window {
    at: u32,
    plane: u32,
    row: u32,
    column: u32,
}

struct Tap {
    at: u32,
    plane: u32,
    row: u32,
    column: u32,
}

fn window_of(pixel: u32) -> Window {
    let image = pixel / PIXELS;
    let inside = pixel % PIXELS;
    let line = inside / PIXELS_WIDTH;
    let volume = (image * SOURCE_CHANNELS + group_number() * GROUP_SOURCES) * SOURCE_PLANE;
    return Window(
        volume,
        line / PIXELS_HEIGHT + FIRST_PLANE,
        line % PIXELS_HEIGHT + FIRST_ROW,
        inside % PIXELS_WIDTH + FIRST_COLUMN,
    );
}

fn tap_of(channel: u32, tap: u32) -> Tap {
    let line = tap / KERNEL_WIDTH;
    return Tap(
        channel * SOURCE_PLANE,
        line / KERNEL_HEIGHT * TAP_BACK,
        line % KERNEL_HEIGHT * TAP_DOWN,
        tap % KERNEL_WIDTH * TAP_RIGHT,
    );
}

fn found(window: Window, tap: Tap) -> Found {
    // A tap further than the place wraps around to a plane, row or column that no volume has.
    let back = window.plane - tap.plane;
    let down = window.row - tap.row;
    let right = window.column - tap.column;
    let plane = back / STRIDE_BACK;
    let row = down / STRIDE_DOWN;
    let column = right / STRIDE_RIGHT;
    let whole = back % STRIDE_BACK == 0u && down % STRIDE_DOWN == 0u && right % STRIDE_RIGHT == 0u;
    let inside = whole && plane < SOURCE_DEPTH && row < SOURCE_HEIGHT && column < SOURCE_WIDTH;
    return Found(select(0u, window.at + tap.at + (plane * SOURCE_HEIGHT + row) * SOURCE_WIDTH + column, inside), inside);
}
