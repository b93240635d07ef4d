// Sums of the planes of each channel, over a part of the images: one workgroup a channel and part,
// WIDTH threads along a plane and LANES along the images, their sums joined by one fixed tree.

const LANES: u32 = THREADS / WIDTH;

#{JOIN}

fn main(index: u32, thread: u32) {
    let channel = index % constants.channels;
    let part = index / constants.channels;
    var sum = #{UNIT}();
    if part < constants.parts {
        let end = min(constants.images, (part + 1u) * constants.part);
        for (var image = part * constants.part + thread / WIDTH; image < end; image += LANES) {
            let plane = (image * constants.channels + channel) * constants.inner;
            for (var i = thread % WIDTH; i < constants.inner; i += WIDTH) {
                sum += dz[plane + i];
            }
        }
    }
    let whole = join(thread, #{WHOLE});
    if thread == 0u && part < constants.parts {
        sums[index] = select(whole, sums[index] + whole, constants.accumulate != 0u);
    }
}
