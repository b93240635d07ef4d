// A weighted sum of branches, or the gradient of the branches: one thread an element of the result.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    let len = constants.len;
    let place = i % len;
#{COMPUTE}
}
