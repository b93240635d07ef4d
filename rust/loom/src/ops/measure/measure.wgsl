// The sums of a a, a t, t t and (a - t) (a - t) over a part of a value and its target, on top of those of
// the parts before.
//
// Every workgroup leaves the sums of its share; the one that is done last, whichever it is, adds them
// all up, in the order of their numbers. What passes between workgroups goes through atomics: plain
// memory need not be the same to all of them.

#{JOIN}

var<workgroup> is_last: bool;

fn sums_of(i: u32) -> vec4<f32> {
    // What lies beyond the last element in its unit of four is nobody's.
    let inside = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
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
    for (var i = group * THREADS + thread; i < units; i += stride) {
        sums += sums_of(i);
    }
    let share = join(thread, sums);
    if thread == 0u {
        for (var part = 0u; part < 4u; part += 1u) {
            atomicStore(&shares[1u + 4u * group + part], bitcast<u32>(share[part]));
        }
    }
    storageBarrier();
    if thread == 0u {
        is_last = atomicAdd(&shares[0], 1u) == constants.workgroups - 1u;
    }
    if workgroupUniformLoad(&is_last) {
        storageBarrier();
        var one = vec4<f32>();
        if thread < constants.workgroups {
            for (var part = 0u; part < 4u; part += 1u) {
                one[part] = bitcast<f32>(atomicLoad(&shares[1u + 4u * thread + part]));
            }
        }
        let sum = join(thread, one);
        if thread == 0u {
            result[0] = #{START} + sum;
            atomicStore(&shares[0], 0u);
        }
    }
}
