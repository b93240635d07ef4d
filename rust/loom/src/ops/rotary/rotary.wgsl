// Turns pairs of elements by angles that depend on their places: a thread a pair, or an element that stays.
#{PLACES}
#{PUT}

fn main(i: u32) {
    if i >= constants.threads {
        return;
    }
    let pair = i % (PAIRS + STILL);
    let head = i / (PAIRS + STILL);
    let start = head * (2u * PAIRS + STILL);
    if pair >= PAIRS {
        put(start + PAIRS + pair, x[start + PAIRS + pair]);
        return;
    }
    let row = head / constants.heads / constants.time;
    let place = min(position(row) + head / constants.heads % constants.time, constants.places - 1u);
    let cosine = turns[place * 2u * PAIRS + pair];
    let sine = #{SIGN}turns[place * 2u * PAIRS + PAIRS + pair];
    let first = start + #{FIRST};
    let second = start + #{SECOND};
    let a = x[first];
    let b = x[second];
    put(first, a * cosine - b * sine);
    put(second, b * cosine + a * sine);
}
