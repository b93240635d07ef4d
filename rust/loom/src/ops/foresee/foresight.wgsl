// Brings looks ahead together, and makes them ready for the next step.
fn main() {
    var found = #{START};
    #{LOOKS}
    result[0] = found;
    #{JUDGE}
}
