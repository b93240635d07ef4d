//! Metadata of tensor files.

/// One value of a file's metadata: a string in safetensors, any of these in GGUF.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type of that name")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Values),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array in a file's metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers or booleans of one type, as the file has them: the lowest byte first.
    Numbers(NumberType, Vec<u8>),
    /// Strings.
    Strings(Vec<String>),
    /// Arrays.
    Arrays(Vec<Values>),
}

/// The type of a number in metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the type of that name")]
pub enum NumberType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// GGUF's number of strings, and of arrays.
pub(super) const STRING: u32 = 8;
pub(super) const ARRAY: u32 = 9;

impl NumberType {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type of GGUF's number.
    pub(super) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u32 == number)
    }

    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::Bool => "bool",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }
}
