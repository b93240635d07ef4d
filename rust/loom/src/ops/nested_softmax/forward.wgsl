    if present {
        for (var i = lane; i < SHORTLIST; i += LANES) {
            y[out + i] = exp(x[base + i] - head.largest) * head.share;
        }
    }
    for (var part = 0u; part < PARTS; part += 1u) {
        let start = base + places[3u * part];
        let length = select(0u, places[3u * part + 1u], present);
        let target_start = out + places[3u * part + 2u];
        let own = scale_of(thread, start, start + length);
        if present {
            let share = own.share * (exp(x[base + SHORTLIST + part] - head.largest) * head.share);
            for (var i = lane; i < length; i += LANES) {
                let value = exp(x[start + i] - own.largest) * share;
                if SHARED && part > 0u {
                    y[target_start + i] += value;
                } else {
                    y[target_start + i] = value;
                }
            }
        }
    }
