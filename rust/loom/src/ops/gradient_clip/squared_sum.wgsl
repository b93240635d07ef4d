// The sum of squares of a part of a gradient, on top of a total.
//
// Every workgroup leaves the sum of its share; the one that is done last, whichever it is, adds them
// all up, in the order of their numbers. What passes between workgroups goes through atomics: plain
// memory need not be the same to all of them.

#{JOIN}

var<workgroup> is_last: bool;

fn squares(i: u32) -> f32 {
    var g = gradient[i];
    // What lies beyond the last element in its unit of four is nobody's.
    g = select(vec4<f32>(), g, vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements));
    return dot(g, g);
}

fn main(group: u32, thread: u32) {
    let units = (constants.elements + 3u) / 4u;
    let stride = constants.workgroups * THREADS;
    // Four sums side by side, so that four loads are under way at a time.
    var sums = vec4<f32>();
    var i = group * THREADS + thread;
    for (; i + 3u * stride < units; i += 4u * stride) {
        sums += vec4<f32>(squares(i), squares(i + stride), squares(i + 2u * stride), squares(i + 3u * stride));
    }
    for (; i < units; i += stride) {
        sums.x += squares(i);
    }
    let share = join(thread, (sums.x + sums.y) + (sums.z + sums.w));
    if thread == 0u {
        atomicStore(&shares[1u + group], bitcast<u32>(share));
    }
    storageBarrier();
    if thread == 0u {
        is_last = atomicAdd(&shares[0], 1u) == constants.workgroups - 1u;
    }
    if workgroupUniformLoad(&is_last) {
        storageBarrier();
        var one = 0.0;
        if thread < constants.workgroups {
            one = bitcast<f32>(atomicLoad(&shares[1u + thread]));
        }
        let sum = join(thread, one);
        if thread == 0u {
            total[0] = #{START} + sum;
            atomicStore(&shares[0], 0u);
        }
    }
}
