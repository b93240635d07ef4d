//! Operands of mixed products: rounded to binary16 on their way to the sums.

/// How operands become the numbers that are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// They are what they are.
    #[default]
    None,
    /// To binary16, on the bits: right on every device.
    Bits,
    /// To binary16 by the device's own conversion, which takes fewer instructions: for devices with matrix
    /// units, whose operands are converted so as well.
    Native,
}

impl Rounding {
    /// That of a product that may be mixed, on a device that may have matrix units.
    pub fn of(mixed: bool, units: bool) -> Self {
        match (mixed, units) {
            (false, _) => Self::None,
            (true, false) => Self::Bits,
            (true, true) => Self::Native,
        }
    }

    /// The WGSL functions that a kernel needs beside its hooks.
    pub fn functions(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bits => include_str!("half.wgsl"),
            Self::Native => include_str!("half_native.wgsl"),
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
