#{RULE}

// An element of the result: the weighted sum of those of the operand that make it, in their order.
fn main(i: u32) {
    if (i >= constants.elements) {
        return;
    }
    let place = i / INNER % TO;
    let first = i / INNER / TO * FROM * INNER + i % INNER;
    let band = #{BAND}(place);
    var sum = 0.0;
    for (var source = band.x; source < band.y; source++) {
        sum += #{WEIGHT} * x[first + source * INNER];
    }
    y[i] = sum;
}
