//! WGSL that decodes types whose elements are coded one by one.

use super::coding::Coding;
use super::grouping::{Extents, Granularity};
use super::vec4::{Vec4Decoder, codes};

/// What the text says of one type.
pub(super) struct WgslRule {
    bits: usize,
    /// [`Coding::WORDS`].
    words: usize,
    /// [`Coding::MINIMA`].
    minima: bool,
    /// [`Coding::wgsl`].
    number: &'static str,
    /// [`Coding::wgsl_vec4`].
    vec4: Option<Vec4Decoder>,
}

/// The WGSL expression of the group of the element with this number.
fn group_of(packing: &Extents, at: &str) -> String {
    let channels = packing.channels.max(1);
    match packing.granularity {
        Granularity::Tensor => "0u".to_string(),
        Granularity::Block(block) if block < packing.rows => {
            format!("{at} / {}u * {channels}u + {at} % {channels}u", channels * block.max(1))
        }
        _ => format!("{at} % {channels}u"),
    }
}

/// [`Packing::wgsl_integers`](super::Packing::wgsl_integers) of codes that are packed row after row.
pub(super) fn integers(packing: &Extents, bits: usize) -> [String; 2] {
    let (channels, per) = (packing.channels, 32 / bits);
    let code = match bits {
        1 => "i32(packed[at / 32u] >> (at % 32u) & 1u) * 2 - 1".to_string(),
        _ => format!("extractBits(bitcast<i32>(packed[at / {per}u]), at % {per}u * {bits}u, {bits}u)"),
    };
    let scale = match packing.granularity {
        Granularity::Tensor => "return scales[0];".to_string(),
        Granularity::Block(_) => format!("return scales[number * {channels}u + column];"),
        _ => "return scales[column];".to_string(),
    };
    [format!("let at = k * {channels}u + column;\n    return {code};"), scale]
}

impl WgslRule {
    /// That of a type.
    pub(super) fn of<C: Coding>() -> Self {
        Self { bits: C::BITS, words: C::WORDS, minima: C::MINIMA, number: C::wgsl(), vec4: C::wgsl_vec4() }
    }

    /// The statements that return the number of a `code` (and `high`) in its `group`.
    fn result(&self) -> String {
        let zero = match self.words {
            0 | 1 => "",
            2 if self.minima => "let minimum = bitcast<f32>(scales[2u * group + 1u]);",
            2 => "let zero = scales[2u * group + 1u];",
            _ => "let zero = scales[3u * group + 1u];\n    let zero_high = scales[3u * group + 2u];",
        };
        let result = match self.words {
            0 => "number".to_string(),
            2 if self.minima => "number * bitcast<f32>(scales[2u * group]) + minimum".to_string(),
            words => format!("number * bitcast<f32>(scales[{words}u * group])"),
        };
        format!("    {zero}\n    {}\n    return {result};\n", self.number)
    }

    /// [`Format::wgsl`](super::format::Format::wgsl).
    pub(super) fn statements(&self, packing: &Extents) -> String {
        let (bits, per) = (self.bits, 32 / self.bits.min(32));
        let code = match bits {
            64 => "let code = packed[2u * at];\n    let high = packed[2u * at + 1u];".to_string(),
            32 => "let code = packed[at];".to_string(),
            _ => format!("let code = extractBits(packed[at / {per}u], at % {per}u * {bits}u, {bits}u);"),
        };
        let group = match self.words {
            0 => String::new(),
            _ => format!("let group = {};", group_of(packing, "at")),
        };
        format!("    {code}\n    {group}\n{}", self.result())
    }

    /// [`Format::wgsl_vec4_at`](super::format::Format::wgsl_vec4_at).
    pub(super) fn vec4_at(&self, packing: &Extents, name: &str) -> Option<String> {
        let (bits, per) = (self.bits, 32 / self.bits.min(32));
        if bits > 8 {
            return None;
        }
        // Where rows are whole fours, the groups of four elements lie side by side, too.
        let beside = packing.channels.is_multiple_of(4);
        let group = |element: usize| match packing.granularity {
            Granularity::Tensor => "0u".to_string(),
            _ if beside => format!("group + {element}u"),
            _ => group_of(packing, &format!("(at + {element}u)")),
        };
        let numbers: Vec<String> = (0..4)
            .map(|element| {
                let code = format!("extractBits(word, {}u, {bits}u)", element * bits);
                format!("{name}_number({code}, {})", group(element))
            })
            .collect();
        Some(format!(
            "fn {name}_number(code: u32, group: u32) -> f32 {{\n{}}}\n\
             fn {name}(at: u32) -> vec4<f32> {{\n    \
             let word = packed[at / {per}u] >> (at % {per}u * {bits}u);\n    \
             let group = {};\n    \
             return vec4<f32>({});\n}}\n",
            self.result(),
            group_of(packing, "at"),
            numbers.join(", ")
        ))
    }

    /// The WGSL of `fn NAME(word: .., zeros: ..) -> vec4<f32>`, and of `fn NAME_scales(group: vec4<u32>)` and
    /// `fn NAME_zeros(group: vec4<u32>)` where there are such, from the array of words `scales`; and what
    /// numbers are to be multiplied by beside their scales.
    pub(super) fn vec4(&self, name: &str) -> (String, f32) {
        (self.vec4_text(name), self.vec4.as_ref().map_or(1.0, |decoder| decoder.factor))
    }

    fn vec4_text(&self, name: &str) -> String {
        let mut text = String::new();
        let Self { bits, words, minima, number: rule, ref vec4 } = *self;
        let each = |call: &dyn Fn(&str) -> String| ["x", "y", "z", "w"].map(call).join(", ");
        if words > 0 {
            let scale = |c: &str| format!("bitcast<f32>(scales[{words}u * group.{c}])");
            text += &format!(
                "fn {name}_scales(group: vec4<u32>) -> vec4<f32> {{\n    return vec4<f32>({});\n}}\n",
                each(&scale)
            );
        }
        let zero = |number: usize, c: &str| format!("scales[{words}u * group.{c} + {number}u]");
        if minima {
            let minimum = |c: &str| format!("bitcast<f32>({})", zero(1, c));
            text += &format!(
                "fn {name}_minima(group: vec4<u32>) -> vec4<f32> {{\n    return vec4<f32>({});\n}}\n",
                each(&minimum)
            );
        }
        let word = match bits {
            ..=8 => "word: u32",
            16 => "word: vec2<u32>",
            32 => "word: vec4<u32>",
            _ => "word: vec4<u32>, high: vec4<u32>",
        };
        if let Some(Vec4Decoder { body, zeros: [kind, component], .. }) = vec4 {
            let mut parameter = String::new();
            if !kind.is_empty() {
                let all = each(&|c| component.replace("zero", &zero(1, c)));
                text += &format!(
                    "fn {name}_zeros(group: vec4<u32>) -> {kind} {{\n    return {kind}({all});\n}}\n"
                );
                parameter = format!(", zeros: {kind}");
            }
            return text + &format!("fn {name}({word}{parameter}) -> vec4<f32> {{\n{body}}}\n");
        }
        // One after the other, by the type's own rule.
        let kind = match words {
            0 | 1 => "",
            2 => "array<vec4<u32>, 1>",
            _ => "array<vec4<u32>, 2>",
        };
        let (mut parameter, mut arguments) = (String::new(), vec![("code", None)]);
        if bits > 32 {
            arguments.push(("high", None));
        }
        if !kind.is_empty() {
            let all: Vec<String> =
                (1..words).map(|number| format!("vec4<u32>({})", each(&|c| zero(number, c)))).collect();
            text += &format!(
                "fn {name}_zeros(group: vec4<u32>) -> {kind} {{\n    return {kind}({});\n}}\n",
                all.join(", ")
            );
            parameter = format!(", zeros: {kind}");
            arguments.push(("zero", Some(0)));
            if words > 2 {
                arguments.push(("zero_high", Some(1)));
            }
        }
        let parameters: Vec<String> = arguments.iter().map(|(name, _)| format!("{name}: u32")).collect();
        text += &format!(
            "fn {name}_number({}) -> f32 {{\n    {}\n    return number;\n}}\n",
            parameters.join(", "),
            rule
        );
        let code = if bits < 32 { codes(bits) } else { "word".into() };
        let numbers = each(&|c| {
            let values: Vec<String> = arguments
                .iter()
                .map(|(argument, zero)| match zero {
                    Some(number) => format!("zeros[{number}].{c}"),
                    None if *argument == "high" => format!("high.{c}"),
                    None => format!("codes.{c}"),
                })
                .collect();
            format!("{name}_number({})", values.join(", "))
        });
        text + &format!(
            "fn {name}({word}{parameter}) -> vec4<f32> {{\n    let codes = {code};\n    return vec4<f32>({numbers});\n}}\n"
        )
    }
}
