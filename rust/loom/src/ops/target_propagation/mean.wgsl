// Weighted sums divided by their weights: one thread an element.

// Whether a step of the batch is none of padding.
fn is_real(index: u32) -> bool {
    return #{REAL};
}

fn main(i: u32) {
    if i >= constants.count {
        return;
    }
    let index = i / constants.features;
    let feature = i % constants.features;
    var has_sum = is_real(index);
    var place = index;
    if LAST {
        place = index / constants.steps;
        let end = (place + 1u) * constants.steps;
        for (var later = index + 1u; later < end; later += 1u) {
            if is_real(later) {
                has_sum = false;
                break;
            }
        }
    }
    let weight = weights[feature];
    if has_sum && !(weight < LEAST) {
        y[i] = sums[place * constants.features + feature] / weight;
    } else {
        y[i] = x[i];
    }
}
