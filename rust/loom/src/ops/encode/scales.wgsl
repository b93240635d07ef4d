// The scales of a parameter's channels: its columns' largest magnitudes, over a part of it. WIDTH columns
// a workgroup, the rows shared out among LANES threads a column.

#{INT8}

const LANES: u32 = THREADS / WIDTH;
var<workgroup> cells: array<u32, THREADS>;

fn main(group: u32, thread: u32) {
    let column = group * WIDTH + thread % WIDTH;
    let there = column < constants.channels;
    // Magnitudes are in the order of their bits.
    var found = 0u;
    if there {
        let first = (column + constants.channels - constants.channel) % constants.channels;
        let stride = LANES * constants.channels;
        for (var i = first + thread / WIDTH * constants.channels; i < constants.elements; i += stride) {
            found = max(found, master[i] & 0x7fffffffu);
        }
    }
    cells[thread] = found;
    workgroupBarrier();
    for (var half = THREADS / 2u; half >= WIDTH; half /= 2u) {
        if thread < half {
            cells[thread] = max(cells[thread], cells[thread + half]);
        }
        workgroupBarrier();
    }
    if thread < WIDTH && there && (control.applies != 0u || control.goes_back != 0u) {
        found = cells[thread];
        if constants.goes_on != 0u {
            found = max(found, largest[column]);
        }
        largest[column] = found;
        if constants.ends != 0u {
            scales[column] = scale_of(found);
        }
    }
}
