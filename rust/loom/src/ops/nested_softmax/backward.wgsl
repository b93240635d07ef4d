    var partial = 0.0;
    if present {
        for (var i = lane; i < SHORTLIST; i += LANES) {
            partial += exp(x[base + i] - head.largest) * head.share * dy[out + i];
        }
    }
    // The mean of the head's gradients: dy's for the shortlist, each part's own mean.
    var mean = sum_of(thread, partial);
    for (var part = 0u; part < PARTS; part += 1u) {
        let start = base + places[3u * part];
        let length = select(0u, places[3u * part + 1u], present);
        let source = out + places[3u * part + 2u];
        let own = scale_of(thread, start, start + length);
        var products = 0.0;
        for (var i = lane; i < length; i += LANES) {
            products += exp(x[start + i] - own.largest) * own.share * dy[source + i];
        }
        let own_mean = sum_of(thread, products);
        if present {
            let gate = exp(x[base + SHORTLIST + part] - head.largest) * head.share;
            for (var i = lane; i < length; i += LANES) {
                let value = exp(x[start + i] - own.largest) * own.share * gate;
                dx[start + i] = value * (dy[source + i] - own_mean);
            }
            // The thread that reads it again below.
            if (SHORTLIST + part) % LANES == lane {
                dx[base + SHORTLIST + part] = own_mean;
            }
            mean += gate * own_mean;
        }
    }
    if present {
        for (var i = lane; i < SHORTLIST + PARTS; i += LANES) {
            let value = exp(x[base + i] - head.largest) * head.share;
            var slope = 0.0;
            if i < SHORTLIST {
                slope = dy[out + i];
            } else {
                slope = dx[base + i];
            }
            dx[base + i] = value * (slope - mean);
        }
    }
