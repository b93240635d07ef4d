// Mean and variance of each channel from those of its parts (Chan, Golub and LeVeque 1979): one thread a channel.
// (parts, channels)

// Numbers of a part.
fn count_of(part: u32) -> f32 {
    return f32(min(constants.part, constants.terms - part * constants.part));
}

fn main(channel: u32) {
    if channel >= constants.channels {
        return;
    }
    let terms = f32(constants.terms);
    // Distances from the first part's mean round less than means would.
    let origin = means[channel];
    var centre = 0.0;
    for (var part = 1u; part < constants.parts; part += 1u) {
        centre += (means[part * constants.channels + channel] - origin) * (count_of(part) / terms);
    }
    centre += origin;
    var spread = 0.0;
    for (var part = 0u; part < constants.parts; part += 1u) {
        let distance = means[part * constants.channels + channel] - centre;
        spread += spreads[part * constants.channels + channel] + distance * distance * count_of(part);
    }
    mean[channel] = centre;
    variance[channel] = spread / terms;
}
