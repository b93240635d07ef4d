        // -sum t log softmax(o FACTOR)
        var largest = LEAST;
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                largest = max(largest, output[base + c * INNER]);
            }
        }
        largest = class_largest(thread, largest);
        // Of the powers, and of the targets.
        var sums = vec2<f32>();
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                let i = base + c * INNER;
                sums += vec2<f32>(exp((output[i] - largest) * FACTOR), wanted(axis, c, i));
            }
        }
        sums = class_sums(thread, sums);
        if present {
            let log_sum = log(sums.x);
            let share = sums.y / sums.x;
            for (var c = lane; c < CLASSES; c += LANES) {
                let i = base + c * INNER;
                let t = wanted(axis, c, i);
                let logit = (output[i] - largest) * FACTOR;
                // An infinite logarithm of what is not asked for costs nothing.
                loss += select(t * (log_sum - logit#{ENTROPY}), 0.0, t == 0.0);
                #{GRADIENT}
            }
        }
