// The mean of each window, summed in four lanes.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<#{STORED}>;

fn mean_of(window: u32) -> f32 {
    let plane = window / OUTPUTS * INPUTS;
    let inside = window % OUTPUTS;
    let top = inside / OUTPUT_WIDTH;
    let left = inside % OUTPUT_WIDTH;
    var sum = vec4<f32>();
    for (var down = 0u; down < KERNEL_HEIGHT; down++) {
        // What lies before the plane wraps around to large numbers.
        let row = top * STRIDE_DOWN + down * DILATION_DOWN - PADDING_DOWN;
        for (var right = 0u; right < KERNEL_WIDTH; right += 4u) {
            sum += vec4<f32>(
                element(plane, row, left, right),
                element(plane, row, left, right + 1u),
                element(plane, row, left, right + 2u),
                element(plane, row, left, right + 3u),
            );
        }
    }
    return (sum.x + sum.y + sum.z + sum.w) / elements(top, left);
}

fn element(plane: u32, row: u32, left: u32, right: u32) -> f32 {
    let column = left * STRIDE_RIGHT + right * DILATION_RIGHT - PADDING_RIGHT;
    var value = 0.0;
    if (right < KERNEL_WIDTH && row < INPUT_HEIGHT && column < INPUT_WIDTH) {
        value = x[plane + row * INPUT_WIDTH + column];
    }
    return value;
}
