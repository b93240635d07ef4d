// Rows of a table by their numbers: a thread an element.

fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    // Numbers are whole, and checked before they get here; the cast saturates.
    let row = min(u32(max(x[i / WIDTH], 0.0)), VOCABULARY - 1u);
    let at = row * WIDTH + i % WIDTH;
    y[i] = #{VALUE};
}
