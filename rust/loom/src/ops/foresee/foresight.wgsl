// Brings looks ahead together, and makes them ready for the next step.
fn main() {
    var found = 0u;
    #{LOOKS}
    result[0] = f32(found);
    #{JUDGE}
}
