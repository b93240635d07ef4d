// Writes a call's steps behind those of earlier calls: a thread an element.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let place = i / constants.features % constants.time + steps[constants.step].position;
    let row = i / constants.features / constants.time;
    if place < constants.capacity {
        cache[(row * constants.capacity + place) * constants.features + i % constants.features] = x[i];
    }
}
