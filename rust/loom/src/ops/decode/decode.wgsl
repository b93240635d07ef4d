// What codes stand for: a thread an element.

fn main(at: u32) {
    if at >= constants.elements {
        return;
    }
    y[at] = #{VALUE};
}
