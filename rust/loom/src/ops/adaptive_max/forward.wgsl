// The largest element of a window and where it lies; ties go to the first, a NaN wins.

// Where a window starts, and the place after its end.
fn window(number: u32, input: u32, output: u32) -> vec2<u32> {
    return vec2<u32>(number * input / output, ((number + 1u) * input + output - 1u) / output);
}

fn main(i: u32) {
    if (i >= constants.elements) {
        return;
    }
    let line = i / OUTPUT_WIDTH;
    let columns = window(i % OUTPUT_WIDTH, INPUT_WIDTH, OUTPUT_WIDTH);
    let rows = window(line % OUTPUT_HEIGHT, INPUT_HEIGHT, OUTPUT_HEIGHT);
    let planes = window(line / OUTPUT_HEIGHT % OUTPUT_DEPTH, INPUT_DEPTH, OUTPUT_DEPTH);
    let volume = line / OUTPUT_HEIGHT / OUTPUT_DEPTH * INPUT_DEPTH * INPUT_HEIGHT * INPUT_WIDTH;
    var at = (planes.x * INPUT_HEIGHT + rows.x) * INPUT_WIDTH + columns.x;
    var best = x[volume + at];
    for (var plane = planes.x; plane < planes.y; plane++) {
        for (var row = rows.x; row < rows.y; row++) {
            for (var column = columns.x; column < columns.y; column++) {
                let place = (plane * INPUT_HEIGHT + row) * INPUT_WIDTH + column;
                let value = x[volume + place];
                if (is_nan(value) || (value > best && !is_nan(best))) {
                    best = value;
                    at = place;
                }
            }
        }
    }
    y[i] = best;
    indices[i] = i32(at);
}
