// The sums of a a, a t, t t and (a - t) (a - t) over a part of a value and its target, and how many elements that is, on
// top of those of the parts before.
//
// Every workgroup leaves the sums of its share; the one that is done last, whichever it is, adds them
// all up, in the order of their numbers. What passes between workgroups goes through atomics: plain
// memory need not be the same to all of them.

#{JOIN}

const NUMBERS = 5u;

var<workgroup> is_last: bool;

// Whether an element counts; what lies beyond the last one in its unit of four is nobody's.
fn element_counts(number: u32) -> bool {
    if number >= constants.elements {
        return false;
    }
    #{PLACE}
    return #{COUNTS};
}

fn unit_counts(i: u32) -> vec4<bool> {
    return vec4<bool>(
        element_counts(4u * i),
        element_counts(4u * i + 1u),
        element_counts(4u * i + 2u),
        element_counts(4u * i + 3u),
    );
}

fn sums_of(i: u32, inside: vec4<bool>) -> vec4<f32> {
    var a = value[i];
    if ALONE {
        a = select(vec4<f32>(), a, inside);
        return vec4<f32>(dot(a, a), 0.0, 0.0, 0.0);
    }
    let now = steps[constants.step];
    var t = #{TARGET};
    a = select(vec4<f32>(), a, inside);
    t = select(vec4<f32>(), t, inside);
    let difference = a - t;
    return vec4<f32>(dot(a, a), dot(a, t), dot(t, t), dot(difference, difference));
}

fn main(group: u32, thread: u32) {
    let units = (constants.elements + 3u) / 4u;
    let stride = constants.workgroups * THREADS;
    var sums = vec4<f32>();
    var counted = 0.0;
    for (var i = group * THREADS + thread; i < units; i += stride) {
        let inside = unit_counts(i);
        sums += sums_of(i, inside);
        counted += dot(select(vec4<f32>(), vec4<f32>(1.0), inside), vec4<f32>(1.0));
    }
    let share = join(thread, sums);
    var count = f32(constants.elements);
    if MASKED {
        count = join(thread, vec4<f32>(counted)).x;
    }
    if thread == 0u {
        for (var part = 0u; part < 4u; part += 1u) {
            atomicStore(&shares[1u + NUMBERS * group + part], bitcast<u32>(share[part]));
        }
        atomicStore(&shares[5u + NUMBERS * group], bitcast<u32>(count));
    }
    storageBarrier();
    if thread == 0u {
        is_last = atomicAdd(&shares[0], 1u) == constants.workgroups - 1u;
    }
    if workgroupUniformLoad(&is_last) {
        storageBarrier();
        var one = vec4<f32>();
        var own = 0.0;
        if thread < constants.workgroups {
            for (var part = 0u; part < 4u; part += 1u) {
                one[part] = bitcast<f32>(atomicLoad(&shares[1u + NUMBERS * thread + part]));
            }
            own = bitcast<f32>(atomicLoad(&shares[5u + NUMBERS * thread]));
        }
        let sum = join(thread, one);
        if MASKED {
            count = join(thread, vec4<f32>(own)).x;
        }
        if thread == 0u {
            for (var part = 0u; part < 4u; part += 1u) {
                result[part] = select(0.0, result[part], CONTINUES) + sum[part];
            }
            result[4] = select(0.0, result[4], CONTINUES) + count;
            atomicStore(&shares[0], 0u);
        }
    }
}
