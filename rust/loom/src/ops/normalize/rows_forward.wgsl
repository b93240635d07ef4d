    var sum = 0.0;
    for (var e = lane; e < end; e += LANES) {
        sum += x[base + e];
    }
    let mean = #{MEAN};
    var squares = 0.0;
    for (var e = lane; e < end; e += LANES) {
        let difference = x[base + e] - mean;
        squares += difference * difference;
    }
    let scale = 1.0 / sqrt(set_sum(thread, squares) / f32(EXTENT) + EPSILON);
    if lane < end && lane == 0u {
        inverse[place] = scale;
        #{KEEP_MEAN}
    }
    for (var e = lane; e < end; e += LANES) {
        y[base + e] = (x[base + e] - mean) * scale * #{GAIN} + #{BIAS};
    }
