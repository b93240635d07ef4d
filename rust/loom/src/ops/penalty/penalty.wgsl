// Adds to a piece of a gradient what a penalty on its weights has as its own.

fn main(i: u32) {
    if i < constants.count {
        let at = constants.start + i;
        let w = master[at];
        var added = sign(w) * constants.l1 + w * constants.l2;
#{NOISE}
        gradient[at] = gradient[at] + added#{SCALE};
    }
}
