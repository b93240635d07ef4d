        // -sum t log max(o, 1e-12)
        if present {
            for (var c = lane; c < CLASSES; c += LANES) {
                let i = base + c * INNER;
                let t = wanted(axis, c, i);
                let o = output[i];
                let probability = select(max(o, 1e-12), o, is_nan(o));
                // With class indices, outputs that are not asked for are not looked at, NaN or not.
                let asked = t != 0.0 || LOOKS_AT_ALL;
                loss -= select(0.0, t * log(probability), asked);
                #{GRADIENT}
            }
        }
