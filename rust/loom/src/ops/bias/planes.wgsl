// Sums of the planes of each channel, over a part of the images: one workgroup a channel and part,
// WIDTH threads along a plane and LANES along the images, their sums joined by one fixed tree.
@group(0) @binding(0) var<storage, read> dz: array<#{UNIT}>;
// (parts, channels)
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

struct Constants {
    step: u32,
    images: u32,
    channels: u32,
    // Units of a plane.
    inner: u32,
    // Images of a part.
    part: u32,
    parts: u32,
    accumulate: u32,
}
var<immediate> constants: Constants;

const LANES: u32 = THREADS / WIDTH;

#{JOIN}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(group, groups);
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
