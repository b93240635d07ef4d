#{FUNCTIONS}

// A thread makes WIDTH neighbouring elements: they share what their windows cover, and are stored together.
fn main(unit: u32) {
    let first = unit * WIDTH;
    if (first < constants.elements) {
        make(first);
    }
}

// Makes and stores the elements from `first` on.
fn make(first: u32) {
#{MAKE}
}
