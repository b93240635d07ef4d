// Copies the rows of a batch out of a whole data set, in the order the epoch passes them.
fn main(element: u32) {
    let row = element / constants.width;
    if row < constants.rows {
        let source = order[steps[constants.step].first_row + row];
        batch[element] = data[source * constants.width + element % constants.width];
    }
}
