// Sums of the columns of a matrix, each over a part of the rows: WIDTH columns a workgroup, the
// rows shared out among LANES threads a column and their sums joined by one fixed tree.

const LANES: u32 = THREADS / WIDTH;
var<workgroup> cells: array<#{UNIT}, THREADS>;

fn main(index: u32, thread: u32) {
    let across = (constants.columns + WIDTH - 1u) / WIDTH;
    let column = index % across * WIDTH + thread % WIDTH;
    let part = index / across;
    let there = column < constants.columns && part < constants.parts;
    // Four sums side by side, so that four loads are under way at a time.
    var a = #{UNIT}();
    var b = #{UNIT}();
    var c = #{UNIT}();
    var d = #{UNIT}();
    if there {
        let end = min(constants.rows, (part + 1u) * constants.part);
        let stride = LANES * constants.columns;
        var row = part * constants.part + thread / WIDTH;
        var at = row * constants.columns + column;
        for (; row + 3u * LANES < end; row += 4u * LANES) {
            a += dz[at];
            b += dz[at + stride];
            c += dz[at + 2u * stride];
            d += dz[at + 3u * stride];
            at += 4u * stride;
        }
        for (; row < end; row += LANES) {
            a += dz[at];
            at += stride;
        }
    }
    cells[thread] = (a + b) + (c + d);
    workgroupBarrier();
    for (var half = THREADS / 2u; half >= WIDTH; half /= 2u) {
        if thread < half {
            cells[thread] += cells[thread + half];
        }
        workgroupBarrier();
    }
    if thread < WIDTH && there {
        let i = part * constants.columns + column;
        var sum = cells[thread];
        if constants.accumulate != 0u {
            sum += sums[i];
        }
        sums[i] = sum;
    }
}
