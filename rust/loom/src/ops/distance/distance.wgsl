// Squared distances to centroids, or a gradient of them: one thread a result.
fn main(i: u32) {
    if i >= constants.results {
        return;
    }
    let features = constants.features;
    let count = constants.centroids;
    let factor = constants.factor;
    var sum = 0.0;
    #{BODY}
}
