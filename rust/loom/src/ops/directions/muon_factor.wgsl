// One over the norm.

#{JOIN}

fn main(thread: u32) {
    var sum = 0.0;
    if thread < constants.shares {
        sum = sums[thread];
    }
    let total = join(thread, sum);
    if thread == 0u {
        factor[0] = 1.0 / (sqrt(total) + EPSILON);
    }
}
