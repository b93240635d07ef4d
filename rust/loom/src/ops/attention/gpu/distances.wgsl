// The gradients of the scores of all pairs of one distance, added up: a thread a distance of a head.
#{VECTORS}

#{SIGHT}

fn main(i: u32) {
    if i >= constants.all {
        return;
    }
    let distance = i % constants.distances;
    let head = i / constants.distances % HEADS;
    let row = i / constants.distances / HEADS;
    // The first query whose key at this distance is there, and what takes it to that key.
    let first = select(0u, constants.zero - distance, distance < constants.zero);
    var sum = 0.0;
    for (var query = first; query < constants.queries; query += 1u) {
        let key = query + distance - constants.zero;
        if key >= constants.keys {
            break;
        }
        if !sees(row, query, key) {
            continue;
        }
        let mine = (row * constants.queries + query) * HEADS + head;
        let theirs = (row * constants.keys + key) * KEY_VALUE_HEADS + head / (HEADS / KEY_VALUE_HEADS);
        var products = vec4<f32>();
        var given = vec4<f32>();
        for (var unit = 0u; unit < UNITS; unit += 1u) {
            products = fma(load_q(mine, unit, true) * SCALE, load_k(theirs, unit, true), products);
            given = fma(load_dy(mine, unit, true), load_v(theirs, unit, true), given);
        }
        let score = capped(biased(head, query, key, products.x + products.y + (products.z + products.w)));
        let gradient = (given.x + given.y + (given.z + given.w)) * kept(row, head, query, key);
        sum += exp(score - logs[mine]) * (gradient - means[mine]) * cap_slope(score);
    }
    sums[i] = sum;
}
