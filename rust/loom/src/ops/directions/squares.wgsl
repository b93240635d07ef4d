// The sums of squares of some elements, of which every workgroup leaves its share.

#{JOIN}

fn main(group: u32, thread: u32) {
    var sum = 0.0;
    for (var i = group * THREADS + thread; i < constants.elements; i += constants.workgroups * THREADS) {
        sum += values[i] * values[i];
    }
    let share = join(thread, sum);
    if thread == 0u {
        sums[group] = share;
    }
}
