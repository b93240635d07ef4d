// The scales of a parameter's groups: of 16 columns a workgroup, each in 16 lanes that take its rows in
// turn and are put together as a tree, as on the CPU.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> master: array<u32>;
@group(0) @binding(2) var<storage, read_write> scales: array<u32>;

struct Constants {
    step: u32,
    // Of the matrix that groups cut: so many rows of a column each.
    rows: u32,
    columns: u32,
    block: u32,
    // Workgroups for the groups of all columns, and for all groups.
    across: u32,
    groups: u32,
}
var<immediate> constants: Constants;

#{DIVISION}

// What is found in a lane: the largest magnitude; or the largest of negative numbers and the largest of
// the others; or the sum of magnitudes, as a float's bits.
var<workgroup> cells: array<vec2<u32>, 256>;

fn joined(found: vec2<u32>, other: vec2<u32>) -> vec2<u32> {
    if MEAN {
        return vec2<u32>(sum_of(found.x, other.x), 0u);
    }
    return max(found, other);
}

fn found_in(bits: u32) -> vec2<u32> {
    let magnitude = bits & 0x7fffffffu;
    if RANGE && bits >> 31u == 0u {
        return vec2<u32>(0u, magnitude);
    }
    return vec2<u32>(magnitude, 0u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group_index(group, groups);
    let first = number / constants.across * constants.block;
    let end = min(first + constants.block, constants.rows);
    let column = number % constants.across * 16u + thread % 16u;
    let there = number < constants.groups && column < constants.columns;
    var found = vec2<u32>();
    if there {
        for (var row = first + thread / 16u; row < end; row += 16u) {
            found = joined(found, found_in(master[row * constants.columns + column]));
        }
    }
    cells[thread] = found;
    workgroupBarrier();
    for (var half = 128u; half >= 16u; half /= 2u) {
        if thread < half {
            cells[thread] = joined(cells[thread], cells[thread + half]);
        }
        workgroupBarrier();
    }
    if thread >= 16u || !there || (control.applies == 0u && control.goes_back == 0u) {
        return;
    }
    found = cells[thread];
    if MEAN {
        found.x = quotient_of(found.x, bitcast<u32>(f32(end - first)));
    }
    if RANGE {
        found.x = sum_of(found.x, found.y);
    }
    var scale = quotient_of(found.x, LIMIT);
    // All zero, or too small for any scale: decodes to zeros. Or so large that the largest code would
    // decode to infinity.
    if scale == 0u && !SIGN_ALONE {
        scale = 0x3f800000u;
    }
    scale = min(scale, LARGEST_SCALE);
    let at = (number / constants.across * constants.columns + column) * WORDS;
    scales[at] = scale;
    if RANGE {
        scales[at + 1u] = integer_of(quotient_of(cells[thread].x, scale), LARGEST_CODE);
    }
}
