    // (parts, centroids, features)
    let place = i % (count * features);
    let start = i / (count * features) * constants.part;
    let end = min(constants.points, start + constants.part);
    for (var point = start; point < end; point += 1u) {
        sum += dy[point * count + place / features] * (x[point * features + place % features] - centroids[place]);
    }
    let total = sum * (2.0 * factor);
    result[i] = select(total, result[i] + total, constants.accumulate != 0u);
