// The scales of a parameter's channels: its columns' largest magnitudes, over a part of it. WIDTH columns
// a workgroup, the rows shared out among LANES threads a column.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> master: array<u32>;
// Of the parts so far.
@group(0) @binding(2) var<storage, read_write> largest: array<u32>;
@group(0) @binding(3) var<storage, read_write> scales: array<u32>;

struct Constants {
    step: u32,
    elements: u32,
    channels: u32,
    // Of the part's first weight.
    channel: u32,
    // Whether there were parts before, and whether this is the last one.
    goes_on: u32,
    ends: u32,
}
var<immediate> constants: Constants;

#{INT8}

const LANES: u32 = THREADS / WIDTH;
var<workgroup> cells: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let column = group_index(group, groups) * WIDTH + thread % WIDTH;
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
