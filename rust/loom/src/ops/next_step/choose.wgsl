// The first place of the largest number of a row: a workgroup a row.

// The place of what is not there.
const NOWHERE: u32 = 0xffffffffu;
// The place of what is not finite, which comes before all else.
const NOT_FINITE: u32 = 0xfffffffeu;

var<workgroup> largest: array<f32, THREADS>;
var<workgroup> places: array<u32, THREADS>;

// Whether what one thread has found comes before what another one has.
fn comes_before(value: f32, place: u32, other: f32, other_place: u32) -> bool {
    if place == NOWHERE || other_place == NOT_FINITE { return false; }
    if place == NOT_FINITE { return true; }
    return other_place == NOWHERE || value > other || (value == other && place < other_place);
}

fn main(row: u32, thread: u32) {
    if row >= constants.rows {
        return;
    }
    var best = 0.0;
    var place = NOWHERE;
    for (var i = thread; i < constants.classes; i += THREADS) {
        let value = y[row * constants.classes + i];
        let found = select(NOT_FINITE, i, is_finite(value));
        if comes_before(value, found, best, place) {
            best = value;
            place = found;
        }
    }
    largest[thread] = best;
    places[thread] = place;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if thread < left && comes_before(largest[thread + left], places[thread + left], best, place) {
            best = largest[thread + left];
            place = places[thread + left];
            largest[thread] = best;
            places[thread] = place;
        }
    }
    if thread == 0u {
        let at = min(steps[constants.step].position + constants.time, constants.capacity);
        chosen[row * (constants.capacity + 1u) + at] = select(f32(place), -1.0, place == NOT_FINITE);
    }
}
