// What distances of one bucket have summed up, added up: a thread an element of a table (buckets, heads) of each row.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let head = i % HEADS;
    let bucket = i / HEADS % BUCKETS;
    let first = (i / HEADS / BUCKETS * HEADS + head) * constants.distances;
    var sum = 0.0;
    for (var distance = 0u; distance < constants.distances; distance += 1u) {
        if buckets[distance] == bucket {
            sum += sums[first + distance];
        }
    }
    dtable[i] = sum;
}
