// A thread makes BLOCK channels of one pixel, or of STORE_WIDTH neighbouring ones, straight from memory: the
// weights are the same for all threads of a workgroup, and neighbours share what their windows cover.
var<private> batch: u32;

fn main(group: u32, thread: u32) {
    // Workgroups with the same pixels are next to each other, for the cache's sake.
    let blocks = GROUP_DESTINATIONS / BLOCK;
    let block = group % (blocks * GROUPS);
    batch = block / blocks;
    let first = block % blocks * BLOCK;
    let pixel = (group / (blocks * GROUPS) * THREADS + thread) * STORE_WIDTH;
    if (pixel >= constants.pixels) {
        return;
    }
#{WINDOWS}
#{SUMS}
    for (var channel = 0u; channel < GROUP_SOURCES; channel++) {
#{TERMS}
    }
#{STORES}
}
