// What directions are multiplied by: the root of the mean of rows, the limit of their length, and how large their
// weights are.

#{JOIN}

fn main(thread: u32) {
    var sums = vec3<f32>();
    if thread < constants.length_shares {
        sums.x = lengths[thread];
    }
    if thread < constants.weight_shares {
        sums.y = weights[thread];
    }
    for (var row = thread; MATRIX && row < constants.rows; row += THREADS) {
        sums.z += next[row];
    }
    let total = join(thread, sums);
    if thread == 0u {
        let count = f32(constants.elements);
        let mean = select(1.0, total.z / f32(constants.rows), MATRIX);
        let length = sqrt(mean) * sqrt(total.x / count);
        var made = sqrt(mean);
        // Not where it is NaN, which the directions are, too.
        if CLIP > 0.0 && length > CLIP {
            made /= length / CLIP;
        }
        if SCALES {
            made *= max(sqrt(total.y / count), LEAST_SCALE);
        }
        factor[0] = made;
    }
}
