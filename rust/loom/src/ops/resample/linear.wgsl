// Between the centres of two elements.

const SCALE: u32 = OUTPUT / INPUT;

// Where the centre of an element of y lies in x, in steps of half an element of y.
fn centre(place: u32) -> u32 {
    let far = 2u * place + 1u;
    return min(far - min(far, SCALE), 2u * SCALE * (INPUT - 1u));
}

// Which elements of x make one of y: the first, and the one after the last.
fn makers(place: u32) -> vec2<u32> {
    let first = centre(place) / (2u * SCALE);
    return vec2<u32>(first, first + 1u + select(0u, 1u, centre(place) % (2u * SCALE) > 0u));
}

// Which elements of y one of x is part of.
fn made(place: u32) -> vec2<u32> {
    let far = 2u * SCALE * place + 1u;
    let end = (2u * SCALE * place + 3u * SCALE) / 2u;
    return vec2<u32>((far - min(far, SCALE)) / 2u, min(end, OUTPUT));
}

fn weight(source: u32, element: u32) -> f32 {
    let there = centre(element);
    let here = 2u * SCALE * source;
    return 1.0 - f32(max(there, here) - min(there, here)) / f32(2u * SCALE);
}
