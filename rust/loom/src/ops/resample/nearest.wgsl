// Every element several times.

const SCALE: u32 = OUTPUT / INPUT;

// Which elements of x make one of y: the first, and the one after the last.
fn makers(place: u32) -> vec2<u32> {
    return vec2<u32>(place / SCALE, place / SCALE + 1u);
}

// Which elements of y one of x makes.
fn made(place: u32) -> vec2<u32> {
    return vec2<u32>(place * SCALE, (place + 1u) * SCALE);
}

fn weight(source: u32, element: u32) -> f32 {
    return 1.0;
}
