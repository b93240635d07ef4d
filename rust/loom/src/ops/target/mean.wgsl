// Weighted sums divided by their weights: one thread an element.
#{OPERANDS}

struct Constants {
    step: u32,
    count: u32,
    steps: u32,
    features: u32,
}
var<immediate> constants: Constants;

// Whether a step of the batch is none of padding.
fn is_real(index: u32) -> bool {
    return #{REAL};
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i >= constants.count {
        return;
    }
    let index = i / constants.features;
    let feature = i % constants.features;
    var has_sum = is_real(index);
    var place = index;
    if LAST {
        place = index / constants.steps;
        let end = (place + 1u) * constants.steps;
        for (var later = index + 1u; later < end; later += 1u) {
            if is_real(later) {
                has_sum = false;
                break;
            }
        }
    }
    let weight = weights[feature];
    if has_sum && !(weight < LEAST) {
        y[i] = sums[place * constants.features + feature] / weight;
    } else {
        y[i] = x[i];
    }
}
