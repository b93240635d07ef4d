//! Operands of mixed products: rounded to binary16 on their way to the sums.

/// The WGSL functions `rounded(f32)` and `rounded4(vec4<f32>)`.
pub const HALF: &str = include_str!("half.wgsl");

/// The WGSL functions that a product needs beside its hooks.
pub fn functions(mixed: bool) -> &'static str {
    if mixed { HALF } else { "" }
}

/// The WGSL expression of one element or of four, rounded where the product is mixed.
pub fn operand(mixed: bool, width: u32, element: &str) -> String {
    match (mixed, width) {
        (false, _) => element.to_string(),
        (true, 4) => format!("rounded4({element})"),
        (true, _) => format!("rounded({element})"),
    }
}
