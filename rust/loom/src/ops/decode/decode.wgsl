// What codes stand for: a thread an element.
#{FUNCTIONS}

fn main(at: u32) {
    if at >= constants.elements {
        return;
    }
    y[at] = #{VALUE};
}
