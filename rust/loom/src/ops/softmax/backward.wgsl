    var mean = 0.0;
    if present {
        for (var c = lane; c < CLASSES; c += LANES) {
            let i = base + c * INNER;
            mean += y[i] * dy[i];
        }
    }
    mean = class_sum(thread, mean);
    if present {
        for (var c = lane; c < CLASSES; c += LANES) {
            let i = base + c * INNER;
            dx[i] = y[i] * (dy[i] - mean) * FACTOR;
        }
    }
