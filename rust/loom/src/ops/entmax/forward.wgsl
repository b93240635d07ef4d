    var largest = LEAST;
    for (var c = lane; c < end; c += LANES) {
        largest = max(largest, x[base + c]);
    }
    largest = class_largest(thread, largest);
    var below = -1.0;
    var above = 0.0;
    for (var halving = 0u; halving < HALVINGS; halving += 1u) {
        let middle = (below + above) * 0.5;
        var sum = 0.0;
        for (var c = lane; c < end; c += LANES) {
            sum += value_of((x[base + c] - largest) * (ALPHA - 1.0) - middle);
        }
        let reaches = class_sum(thread, sum) >= 1.0;
        below = select(below, middle, reaches);
        above = select(middle, above, reaches);
    }
    // The elements above tau.
    var counted = 0.0;
    var summed = 0.0;
    for (var c = lane; c < end; c += LANES) {
        let v = (x[base + c] - largest) * (ALPHA - 1.0);
        counted += select(0.0, 1.0, v > below);
        summed += select(0.0, v, v > below);
    }
    let count = class_sum(thread, counted);
    let mean = class_sum(thread, summed) / count;
    var distances = 0.0;
    for (var c = lane; c < end; c += LANES) {
        let v = (x[base + c] - largest) * (ALPHA - 1.0);
        distances += select(0.0, (v - mean) * (v - mean), v > below);
    }
    let spread = class_sum(thread, distances);
    let tau = #{TAU};
    var sum = 0.0;
    for (var c = lane; c < end; c += LANES) {
        sum += value_of((x[base + c] - largest) * (ALPHA - 1.0) - tau);
    }
    let total = class_sum(thread, sum);
    for (var c = lane; c < end; c += LANES) {
        let value = value_of((x[base + c] - largest) * (ALPHA - 1.0) - tau);
        y[base + c] = select(value / total, value, CLOSED);
    }
