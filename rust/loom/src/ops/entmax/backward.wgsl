    var slope = 0.0;
    var product = 0.0;
    for (var c = lane; c < end; c += LANES) {
        let s = slope_of(y[base + c]);
        slope += s;
        product += s * dy[base + c];
    }
    let slopes = class_sum(thread, slope);
    let mean = class_sum(thread, product) / slopes;
    for (var c = lane; c < end; c += LANES) {
        dx[base + c] = slope_of(y[base + c]) * (dy[base + c] - mean);
    }
