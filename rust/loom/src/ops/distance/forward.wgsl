    let point = i / count * features;
    let centroid = i % count * features;
    for (var f = 0u; f < features; f += 1u) {
        let difference = x[point + f] - centroids[centroid + f];
        sum += difference * difference;
    }
    result[i] = -(sum * factor);
