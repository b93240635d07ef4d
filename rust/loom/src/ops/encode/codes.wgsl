// Encodes a parameter with the scales that were found, a word of codes a thread.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> master: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> codes: array<u32>;

struct Constants {
    step: u32,
    elements: u32,
    // Of the matrix that groups cut: so many rows of a column each.
    columns: u32,
    block: u32,
}
var<immediate> constants: Constants;

#{DIVISION}

// The code of a weight, in the lowest bits.
fn code_of(bits: u32, scale: u32, zero: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    let negative = bits >> 31u == 1u;
    #{CODE}
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let word = group_index(group, groups) * THREADS + thread;
    let first = word * (32u / BITS);
    if first >= constants.elements || control.applies == 0u && control.goes_back == 0u {
        return;
    }
    let end = min(first + 32u / BITS, constants.elements);
    var made = 0u;
    for (var i = first; i < end; i++) {
        let at = (i / constants.columns / constants.block * constants.columns + i % constants.columns) * WORDS;
        // Where there is no zero point, the word is not used.
        let code = code_of(master[i], scales[at], scales[at + WORDS - 1u]);
        made |= (code & ((1u << BITS) - 1u)) << ((i - first) * BITS);
    }
    codes[word] = made;
}
