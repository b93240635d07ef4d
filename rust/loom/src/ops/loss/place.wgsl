        let others = loss;
        loss = 0.0;
        var factor = 0.0;
        if present {
            factor = weights[axis];
        }
        let scale = select(0.0, factor / divisor, divisor > 0.0);
