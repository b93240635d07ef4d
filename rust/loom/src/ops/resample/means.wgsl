// The mean of the elements that lie in part or whole where one of the result lies.

// Which elements of x make one of y: the first, and the one after the last.
fn makers(place: u32) -> vec2<u32> {
    return vec2<u32>(place * INPUT / OUTPUT, ((place + 1u) * INPUT + OUTPUT - 1u) / OUTPUT);
}

// Which elements of y one of x is part of.
fn made(place: u32) -> vec2<u32> {
    return vec2<u32>(place * OUTPUT / INPUT, ((place + 1u) * OUTPUT + INPUT - 1u) / INPUT);
}

fn weight(source: u32, element: u32) -> f32 {
    let band = makers(element);
    return 1.0 / f32(band.y - band.x);
}
