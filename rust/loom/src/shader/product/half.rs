//! Operands of mixed products: rounded to binary16 on their way to the sums.

/// How operands become the numbers that are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// They are what they are.
    #[default]
    None,
    /// To binary16, on the bits. NVIDIA's driver takes a conversion to 16 bits and straight back for none at
    /// all, by way of packed words too.
    Bits,
}

impl Rounding {
    /// That of a product that may be mixed.
    pub fn of(mixed: bool) -> Self {
        if mixed { Self::Bits } else { Self::None }
    }

    /// The WGSL functions that a kernel needs beside its hooks.
    pub fn functions(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bits => include_str!("half.wgsl"),
        }
    }

    /// The WGSL expression of one element or of four, rounded.
    pub fn operand(self, width: u32, element: &str) -> String {
        match (self, width) {
            (Self::None, _) => element.to_string(),
            (_, 4) => format!("rounded4({element})"),
            (_, _) => format!("rounded({element})"),
        }
    }
}
