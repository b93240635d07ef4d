//! What others call numeric types, for error messages alone.

use super::DType;

/// The type that a name of others means; in any case, and with or without the library it comes from.
pub(super) fn meant(given: &str) -> Option<DType> {
    let name = given.rsplit('.').next().unwrap_or(given).to_lowercase();
    Some(match name.as_str() {
        "fp64" | "f64" | "double" => DType::Float64,
        "fp32" | "f32" | "float" | "single" | "full" => DType::Float32,
        "fp16" | "f16" | "half" | "float16_t" => DType::Float16,
        "bf16" | "bfloat" | "bfp16" => DType::BFloat16,
        "fp8" | "f8" | "float8" | "float8_e4m3fn" | "fp8_e4m3" | "e4m3" => DType::Float8E4M3,
        "fp8_e5m2" | "e5m2" => DType::Float8E5M2,
        "fp4" | "f4" | "float4" | "e2m1" => DType::Float4E2M1,
        "i64" | "long" => DType::Int64,
        "i32" | "int" => DType::Int32,
        "i16" | "short" => DType::Int16,
        "i8" | "8bit" | "8-bit" | "w8" | "w8a16" | "qint8" | "q8" => DType::Int8,
        "i4" | "4bit" | "4-bit" | "w4" | "w4a16" => DType::Int4,
        "u8" | "byte" | "quint8" => DType::Uint8,
        "q4" => DType::Q4_0,
        "mxfp8" => DType::MxFp8E4M3,
        "1bit" | "1-bit" => DType::Binary,
        "1.58bit" | "bitnet" => DType::Ternary,
        _ => return None,
    })
}
