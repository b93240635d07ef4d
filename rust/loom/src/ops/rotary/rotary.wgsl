// Turns pairs of elements by angles that depend on their places: a thread a pair.
fn main(i: u32) {
    if i >= constants.pairs {
        return;
    }
    let pair = i % PAIRS;
    let head = i / PAIRS;
    let place = min(#{POSITION} + head / constants.heads % constants.time, constants.places - 1u);
    let cosine = turns[place * 2u * PAIRS + pair];
    let sine = #{SIGN}turns[place * 2u * PAIRS + PAIRS + pair];
    let first = head * 2u * PAIRS + #{FIRST};
    let second = head * 2u * PAIRS + #{SECOND};
    let a = x[first];
    let b = x[second];
    y[first] = a * cosine - b * sine;
    y[second] = b * cosine + a * sine;
}
