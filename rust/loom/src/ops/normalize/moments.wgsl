// Mean of a part of each channel's numbers, and their summed squared distances from it: COLUMNS channels a
// workgroup, LANES threads a channel, joined by one fixed tree.

const LANES: u32 = THREADS / COLUMNS;

var<workgroup> cells: array<f32, THREADS>;

// The sum over the threads of this thread's channel.
fn channel_sum(thread: u32, value: f32) -> f32 {
    cells[thread] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if thread < half * COLUMNS {
            cells[thread] += cells[thread + half * COLUMNS];
        }
        workgroupBarrier();
    }
    let joined = cells[thread % COLUMNS];
    workgroupBarrier();
    return joined;
}

fn main(index: u32, thread: u32) {
    let blocks = (constants.channels + COLUMNS - 1u) / COLUMNS;
    let part = index / blocks;
    let channel = index % blocks * COLUMNS + thread % COLUMNS;
    let present = channel < constants.channels && part < constants.parts;
    let start = part * constants.part;
    let end = select(0u, min(constants.terms, start + constants.part), present);
    let first = start + thread / COLUMNS;
    var sum = 0.0;
    for (var term = first; term < end; term += LANES) {
        sum += x[(term / INNER * constants.channels + channel) * INNER + term % INNER];
    }
    let mean = channel_sum(thread, sum) / f32(max(end, start + 1u) - start);
    var spread = 0.0;
    for (var term = first; term < end; term += LANES) {
        let difference = x[(term / INNER * constants.channels + channel) * INNER + term % INNER] - mean;
        spread += difference * difference;
    }
    spread = channel_sum(thread, spread);
    if present && thread < COLUMNS {
        means[part * constants.channels + channel] = mean;
        spreads[part * constants.channels + channel] = spread / constants.divisor;
    }
}
