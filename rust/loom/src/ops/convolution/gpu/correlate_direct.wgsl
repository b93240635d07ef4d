// A workgroup sums over a part of the pixels for one input channel, all taps and BLOCK output
// channels: each thread for some of the pixels, all of these weights in registers; then the
// threads' sums are added in order.
const LANES: u32 = THREADS / ROUND;
var<private> batch: u32;
var<private> part: u32;
var<workgroup> sums: array<f32, ROUND * THREADS>;
var<workgroup> lanes: array<f32, THREADS>;

fn main(group: u32, thread: u32) {
    let blocks = GROUP_OUTPUTS / BLOCK;
    let column = group % blocks * BLOCK;
    let channel = group / blocks % GROUP_SOURCES;
    batch = group / (blocks * GROUP_SOURCES) % GROUPS;
    part = group / (blocks * GROUP_SOURCES * GROUPS);
    if (part >= constants.parts) {
        return;
    }
    let last = min(constants.pixels, (part + 1u) * constants.chunk);
#{SUMS}
    for (var pixel = part * constants.chunk + thread; pixel < last; pixel += THREADS) {
        let window = window_of(pixel);
        let plane = (pixel / PIXELS * OUTPUTS + batch * GROUP_OUTPUTS + column) * PIXELS + pixel % PIXELS;
#{GRADIENTS}
#{PRODUCTS}
    }
#{ROUNDS}
}

// Stores sum `number`: those of the taps come first, then the gradients' own.
fn put(number: u32, channel: u32, column: u32, sum: f32) {
    let tap = number / BLOCK;
    let output = column + number % BLOCK;
    if (tap < TAPS) {
        store(tap * GROUP_SOURCES + channel, output, sum);
    } else if (channel == 0u) {
        store_sum(output, sum);
    }
}

// Adds what the threads have put in `sums`, ROUND sums at a time; the first threads return them.
fn add_up(thread: u32) -> f32 {
    workgroupBarrier();
    // LANES threads for each sum, each adds every LANES-th.
    let first = thread / LANES * THREADS + thread % LANES;
    var sum = sums[first];
    for (var i = LANES; i < THREADS; i += LANES) {
        sum += sums[first + i];
    }
    lanes[thread] = sum;
    workgroupBarrier();
    var total = 0.0;
    if (thread < ROUND) {
        for (var i = 0u; i < LANES; i++) {
            total += lanes[thread * LANES + i];
        }
    }
    return total;
}
