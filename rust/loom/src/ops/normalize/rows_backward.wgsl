    var mean = 0.0;
    var scale = 0.0;
    if lane < end {
        mean = #{KEPT_MEAN};
        scale = inverse[place];
    }
    var sum = 0.0;
    var product = 0.0;
    for (var e = lane; e < end; e += LANES) {
        let slope = dy[base + e] * #{GAIN};
        sum += slope;
        product += slope * ((x[base + e] - mean) * scale);
    }
    let shift = #{SHIFT};
    let along = set_sum(thread, product) / f32(EXTENT);
    for (var e = lane; e < end; e += LANES) {
        let slope = dy[base + e] * #{GAIN};
        dx[base + e] = (slope - shift - (x[base + e] - mean) * scale * along) * scale#{RESIDUAL};
    }
