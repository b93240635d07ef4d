    var largest = LEAST;
    if present {
        for (var c = lane; c < CLASSES; c += LANES) {
            largest = max(largest, x[base + c * INNER]);
        }
    }
    largest = class_largest(thread, largest);
    var sum = 0.0;
    if present {
        for (var c = lane; c < CLASSES; c += LANES) {
            sum += exp((x[base + c * INNER] - largest) * FACTOR);
        }
    }
    sum = class_sum(thread, sum);
    if present {
        let share = 1.0 / sum;
        for (var c = lane; c < CLASSES; c += LANES) {
            let i = base + c * INNER;
            y[i] = exp((x[i] - largest) * FACTOR) * share;
        }
    }
