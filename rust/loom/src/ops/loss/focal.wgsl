        // -sum t (1 - p)^GAMMA log p with p = softmax(o FACTOR)
        var largest = LEAST;
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                largest = max(largest, output[base + c * INNER]);
            }
        }
        largest = class_largest(thread, largest);
        var sum = 0.0;
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                sum += exp((output[base + c * INNER] - largest) * FACTOR);
            }
        }
        let log_sum = log(class_sum(thread, sum));
        var slopes = 0.0;
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                let i = base + c * INNER;
                let t = wanted(axis, c, i);
                let cost = log_sum - (output[i] - largest) * FACTOR;
                let look = looks(cost);
                // What is not asked for costs nothing, impossible or not.
                loss += select(t * look.x * cost, 0.0, t == 0.0);
                slopes += select(t * look.y, 0.0, t == 0.0);
            }
        }
        slopes = class_sum(thread, slopes);
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                let i = base + c * INNER;
                let t = wanted(axis, c, i);
                let cost = log_sum - (output[i] - largest) * FACTOR;
                let own = select(t * looks(cost).y, 0.0, t == 0.0);
                #{GRADIENT}
            }
        }
