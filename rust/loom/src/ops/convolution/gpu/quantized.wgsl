// Products of int8 codes of images and codes of a packed weight, summed exactly: a pixel and up to eight channels
// a thread.

// Codes of the weight, four to a word, for a run of k of the workgroup's channels.
var<workgroup> panel: array<u32, COLUMNS * WORDS>;

// The code of an element of the weight.
fn code_at(k: u32, column: u32) -> i32 {
    #{CODE}
}

// The scale of the weights of a column that share one.
fn scale_at(number: u32, column: u32) -> f32 {
    #{SCALE}
}

#{FINISH}

// The codes that a window meets at rows k to k + 3 of the weight, below `end`; 0 in the border.
fn met(image: u32, channel: u32, origin: vec3<i32>, k: u32, end: u32) -> u32 {
    var four = 0u;
    for (var i = 0u; i < 4u; i++) {
        let row = k + i;
        let tap = row % TAPS;
        let z = origin.x + i32(tap / (KERNEL_HEIGHT * KERNEL_WIDTH) * TAP_BACK);
        let y = origin.y + i32(tap / KERNEL_WIDTH % KERNEL_HEIGHT * TAP_DOWN);
        let x = origin.z + i32(tap % KERNEL_WIDTH * TAP_RIGHT);
        let inside = z >= 0 && z < i32(SOURCE_DEPTH) && y >= 0 && y < i32(SOURCE_HEIGHT)
            && x >= 0 && x < i32(SOURCE_WIDTH);
        if row < end && inside {
            let plane = (channel + row / TAPS) * SOURCE_DEPTH + u32(z);
            let at = (plane * SOURCE_HEIGHT + u32(y)) * SOURCE_WIDTH + u32(x);
            four |= (codes[image * IMAGE_WORDS + at / 4u] >> (at % 4u * 8u) & 255u) << (i * 8u);
        }
    }
    return four;
}

fn main(number_of_group: u32, thread: u32) {
    let strip = number_of_group % ACROSS;
    let part = number_of_group / ACROSS % GROUPS;
    let place = number_of_group / ACROSS / GROUPS * THREADS + thread;
    let there = place < constants.pixels;
    let image = min(place, constants.pixels - 1u) / PIXELS;
    let pixel = min(place, constants.pixels - 1u) % PIXELS;
    let limit = (part + 1u) * GROUP_OUTPUTS;
    let column = part * GROUP_OUTPUTS + strip * COLUMNS;
    let origin = vec3<i32>(
        i32(pixel / (PIXELS_HEIGHT * PIXELS_WIDTH) * STRIDE_BACK) - i32(BORDER_BACK),
        i32(pixel / PIXELS_WIDTH % PIXELS_HEIGHT * STRIDE_DOWN) - i32(BORDER_DOWN),
        i32(pixel % PIXELS_WIDTH * STRIDE_RIGHT) - i32(BORDER_RIGHT),
    );
    #{START}
    for (var number = 0u; number * BLOCK < DEPTH; number++) {
        let end = min(number * BLOCK + BLOCK, DEPTH);
        #{CLEAR}
        for (var first = number * BLOCK; first < end; first += WORDS * 4u) {
            workgroupBarrier();
            for (var i = thread; i < COLUMNS * WORDS; i += THREADS) {
                let k = first + i % WORDS * 4u;
                let own = column + i / WORDS;
                var four = 0u;
                for (var row = k; row < min(k + 4u, end) && own < limit; row++) {
                    four |= (bitcast<u32>(code_at(row, own)) & 255u) << ((row - k) * 8u);
                }
                panel[i] = four;
            }
            workgroupBarrier();
            for (var word = 0u; word < WORDS && first + word * 4u < end; word++) {
                let own = met(image, part * GROUP_INPUTS, origin, first + word * 4u, end);
                #{SUM}
            }
        }
        #{SCALED}
    }
    #{STORE}
}
