// A hidden-to-hidden weight (UNITS, GATES) decoded, and transposed where TURNED.
#{BINDINGS}

struct Constants {
    step: u32,
}
var<immediate> constants: Constants;

fn weight(at: u32) -> f32 {
    return #{ELEMENT};
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    // Neighbouring threads write neighbouring elements.
    let i = group_index(group, groups) * THREADS + thread;
    if i < UNITS * GATES {
        var place = i;
        if TURNED {
            place = i % UNITS * GATES + i / UNITS;
        }
        plain[i] = weight(place);
    }
}
