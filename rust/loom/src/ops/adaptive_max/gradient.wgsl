// dx: the gradients of the windows whose maximum an element is, in their order.

// The windows that a place lies in: the first, and the one after the last.
fn above(place: u32, input: u32, output: u32) -> vec2<u32> {
    return vec2<u32>(place * output / input, ((place + 1u) * output + input - 1u) / input);
}

fn main(i: u32) {
    if (i >= constants.elements) {
        return;
    }
    let line = i / INPUT_WIDTH;
    let columns = above(i % INPUT_WIDTH, INPUT_WIDTH, OUTPUT_WIDTH);
    let rows = above(line % INPUT_HEIGHT, INPUT_HEIGHT, OUTPUT_HEIGHT);
    let planes = above(line / INPUT_HEIGHT % INPUT_DEPTH, INPUT_DEPTH, OUTPUT_DEPTH);
    let at = i32(i % (INPUT_DEPTH * INPUT_HEIGHT * INPUT_WIDTH));
    let volume = line / INPUT_HEIGHT / INPUT_DEPTH * OUTPUT_DEPTH;
    var sum = 0.0;
    for (var plane = planes.x; plane < planes.y; plane++) {
        for (var row = rows.x; row < rows.y; row++) {
            for (var column = columns.x; column < columns.y; column++) {
                let window = ((volume + plane) * OUTPUT_HEIGHT + row) * OUTPUT_WIDTH + column;
                sum += select(0.0, dy[window], indices[window] == at);
            }
        }
    }
    dx[i] = sum;
}
