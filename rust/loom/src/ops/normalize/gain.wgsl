// Sums of dy times the normalised x over a part of each channel's numbers: COLUMNS channels, or
// fours of them, a workgroup, LANES threads a channel, joined by one fixed tree.

const LANES: u32 = THREADS / COLUMNS;

var<workgroup> cells: array<#{UNIT}, THREADS>;

fn main(index: u32, thread: u32) {
    let blocks = (constants.channels + COLUMNS - 1u) / COLUMNS;
    let part = index / blocks;
    let channel = index % blocks * COLUMNS + thread % COLUMNS;
    let present = channel < constants.channels && part < constants.parts;
    let start = part * constants.part;
    let end = select(0u, min(constants.terms, start + constants.part), present);
    var sum = #{UNIT}();
    for (var term = start + thread / COLUMNS; term < end; term += LANES) {
        let repetition = term / INNER;
        let place = repetition * GROUPS + channel / SET_CHANNELS;
        let i = (repetition * constants.channels + channel) * INNER + term % INNER;
        sum += dy[i] * (#{NORMAL});
    }
    cells[thread] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if thread < half * COLUMNS {
            cells[thread] += cells[thread + half * COLUMNS];
        }
        workgroupBarrier();
    }
    if present && thread < COLUMNS {
        let at = part * constants.channels + channel;
        sums[at] = select(cells[thread], sums[at] + cells[thread], constants.accumulate != 0u);
    }
}
