// Brings looks ahead together, and makes them ready for the next step.
@group(0) @binding(0) var<storage, read_write> result: array<f32>;
#{OPERANDS}

struct Constants {
    step: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(1)
fn main() {
    var found = #{START};
    #{LOOKS}
    result[0] = found;
    #{JUDGE}
}
