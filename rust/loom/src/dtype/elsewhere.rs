//! What others call numeric types, for error messages alone.

/// A name in any case without the library it comes from.
pub(super) fn bare(given: &str) -> String {
    given.rsplit('.').next().unwrap_or(given).to_lowercase()
}

/// The name of the type that a name of others means; in any case, and with or without the library it comes from.
pub(super) fn meant(given: &str) -> Option<&'static str> {
    Some(match bare(given).as_str() {
        "fp64" | "f64" | "double" => "float64",
        "fp32" | "f32" | "float" | "single" | "full" => "float32",
        "fp16" | "f16" | "half" | "float16_t" => "float16",
        "bf16" | "bfloat" | "bfp16" => "bfloat16",
        "fp8" | "f8" | "float8" | "float8_e4m3fn" | "fp8_e4m3" | "e4m3" => "float8_e4m3",
        "fp8_e5m2" | "e5m2" => "float8_e5m2",
        "fp4" | "f4" | "float4" | "e2m1" => "float4_e2m1",
        "i64" | "long" => "int64",
        "i32" | "int" => "int32",
        "i16" | "short" => "int16",
        "i8" | "8bit" | "8-bit" | "w8" | "w8a16" | "qint8" | "q8" => "int8",
        "i4" | "4bit" | "4-bit" | "w4" | "w4a16" => "int4",
        "u8" | "byte" | "quint8" => "uint8",
        "q4" => "q4_0",
        "mxfp8" => "mxfp8_e4m3",
        "1bit" | "1-bit" => "binary",
        "1.58bit" | "bitnet" => "ternary",
        _ => return None,
    })
}
