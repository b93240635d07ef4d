// Puts the axes of every row in another order: one thread an element of the result.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    var rest = i;
    var place = 0u;
#{AXES}
    y[i] = x[place + rest * ROW];
}
