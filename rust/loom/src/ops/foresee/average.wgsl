// What a running average would become; see running.wgsl.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let made = constants.kept * running[i] + constants.share * value[i];
    if !is_finite(made) {
        atomicMax(&found[0], 3u);
    }
}
