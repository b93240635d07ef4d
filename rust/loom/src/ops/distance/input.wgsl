    let point = i / features;
    for (var c = 0u; c < count; c += 1u) {
        sum += dy[point * count + c] * (centroids[c * features + i % features] - x[i]);
    }
    result[i] = sum * (2.0 * factor);
