//! The types that tensors have in files, one table row each.

/// Makes the types of their rows: the name in code, the name, safetensors' name, GGUF's number, the elements of a
/// block and its bytes.
macro_rules! elements {
    ($($variant:ident: $name:literal, $safetensors:expr, $gguf:expr, $block:literal, $bytes:literal;)*) => {
        /// What the elements of a tensor in a file are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each variant is the type of that name")]
        #[allow(non_camel_case_types, reason = "GGUF's own names")]
        pub enum ElementType {
            $($variant,)*
        }

        impl ElementType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its name in safetensors, where that has the type.
            pub const fn safetensors(self) -> Option<&'static str> {
                match self { $(Self::$variant => $safetensors),* }
            }

            /// Its number in GGUF, where that has the type.
            pub const fn gguf(self) -> Option<u32> {
                match self { $(Self::$variant => $gguf),* }
            }

            /// The elements that share a block; 1 where each stands for itself.
            pub const fn block(self) -> usize {
                match self { $(Self::$variant => $block),* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

elements! {
    F64: "float64", Some("F64"), Some(28), 1, 8;
    F32: "float32", Some("F32"), Some(0), 1, 4;
    F16: "float16", Some("F16"), Some(1), 1, 2;
    BF16: "bfloat16", Some("BF16"), Some(30), 1, 2;
    F8_E4M3: "float8_e4m3", Some("F8_E4M3"), None, 1, 1;
    F8_E5M2: "float8_e5m2", Some("F8_E5M2"), None, 1, 1;
    F8_E8M0: "float8_e8m0", Some("F8_E8M0"), None, 1, 1;
    I64: "int64", Some("I64"), Some(27), 1, 8;
    I32: "int32", Some("I32"), Some(26), 1, 4;
    I16: "int16", Some("I16"), Some(25), 1, 2;
    I8: "int8", Some("I8"), Some(24), 1, 1;
    U64: "uint64", Some("U64"), None, 1, 8;
    U32: "uint32", Some("U32"), None, 1, 4;
    U16: "uint16", Some("U16"), None, 1, 2;
    U8: "uint8", Some("U8"), None, 1, 1;
    Bool: "bool", Some("BOOL"), None, 1, 1;
    C64: "complex64", Some("C64"), None, 1, 8;
    Q4_0: "q4_0", None, Some(2), 32, 18;
    Q4_1: "q4_1", None, Some(3), 32, 20;
    Q5_0: "q5_0", None, Some(6), 32, 22;
    Q5_1: "q5_1", None, Some(7), 32, 24;
    Q8_0: "q8_0", None, Some(8), 32, 34;
    Q8_1: "q8_1", None, Some(9), 32, 40;
    Q2_K: "q2_k", None, Some(10), 256, 84;
    Q3_K: "q3_k", None, Some(11), 256, 110;
    Q4_K: "q4_k", None, Some(12), 256, 144;
    Q5_K: "q5_k", None, Some(13), 256, 176;
    Q6_K: "q6_k", None, Some(14), 256, 210;
    Q8_K: "q8_k", None, Some(15), 256, 292;
    IQ2_XXS: "iq2_xxs", None, Some(16), 256, 66;
    IQ2_XS: "iq2_xs", None, Some(17), 256, 74;
    IQ3_XXS: "iq3_xxs", None, Some(18), 256, 98;
    IQ1_S: "iq1_s", None, Some(19), 256, 50;
    IQ4_NL: "iq4_nl", None, Some(20), 32, 18;
    IQ3_S: "iq3_s", None, Some(21), 256, 110;
    IQ2_S: "iq2_s", None, Some(22), 256, 82;
    IQ4_XS: "iq4_xs", None, Some(23), 256, 136;
    IQ1_M: "iq1_m", None, Some(29), 256, 56;
    TQ1_0: "tq1_0", None, Some(34), 256, 54;
    TQ2_0: "tq2_0", None, Some(35), 256, 66;
    MXFP4: "mxfp4", None, Some(39), 32, 17;
}

impl ElementType {
    /// The type of a name, ...
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }

    /// ... of a name in safetensors, ...
    pub(super) fn of_safetensors(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.safetensors() == Some(name))
    }

    /// ... and of a number in GGUF.
    pub(super) fn of_gguf(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.gguf() == Some(number))
    }

    /// The bytes of a tensor; `None` where they cannot be counted, or where blocks do not fill its rows.
    pub fn bytes(self, shape: &[usize]) -> Option<usize> {
        // Extents are bounded though others are 0: kernels multiply any of them.
        let most = shape.iter().try_fold(1usize, |product, extent| product.checked_mul((*extent).max(1)))?;
        most.checked_mul(self.block_bytes())?;
        let elements = crate::extents::product(shape);
        let fits = self.block() == 1 || shape.last().is_some_and(|row| row.is_multiple_of(self.block()));
        let blocks = elements.checked_div(self.block())?;
        blocks.checked_mul(self.block_bytes()).filter(|_| fits)
    }
}
