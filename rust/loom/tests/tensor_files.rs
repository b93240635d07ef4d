//! Files of tensors: what is written is read again, and whatever else is in a file, reading it is an error in
//! bounded memory.

use loom::io::{
    ElementType, Format, NumberType, TensorFile, TensorSpec, Value, Values, decode, encode, write_gguf,
    write_safetensors,
};
use loom::{Error, Result};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// The system's allocator, which counts what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(size: isize) {
    // Threads that end free what they held after their counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + size);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

fn specs(elements: &[(&str, ElementType, &[usize])]) -> Vec<TensorSpec> {
    let spec = |(name, element, shape): &(&str, ElementType, &[usize])| TensorSpec {
        name: (*name).into(),
        shape: shape.to_vec(),
        element: *element,
    };
    elements.iter().map(spec).collect()
}

/// Zeros of every type that a format has, and random numbers of those that can be encoded.
fn content(spec: &TensorSpec) -> Result<Cow<'static, [u8]>> {
    let elements: usize = spec.shape.iter().product();
    let encoded = encode(spec.element, &numbers(elements));
    Ok(Cow::Owned(encoded.unwrap_or_else(|_| vec![1; spec.element.bytes(&spec.shape).unwrap()])))
}

fn every(of: impl Fn(ElementType) -> bool) -> Vec<TensorSpec> {
    let elements = ElementType::ALL.iter().copied().filter(|element| of(*element));
    elements
        .map(|element| TensorSpec { name: format!("of.{}", element.name()), shape: vec![2, 256], element })
        .collect()
}

fn gguf_metadata() -> Vec<(String, Value)> {
    let texts = ["a", "", "ä"].map(String::from).to_vec();
    let nested =
        Values::Arrays(vec![Values::Strings(texts.clone()), Values::Numbers(NumberType::U16, vec![1, 2])]);
    [
        ("general.architecture", Value::String("llama".into())),
        ("general.alignment", Value::U32(64)),
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-3)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("i32", Value::I32(-5)),
        ("f32", Value::F32(1.5)),
        ("bool", Value::Bool(true)),
        ("u64", Value::U64(1 << 60)),
        ("i64", Value::I64(-1 << 60)),
        ("f64", Value::F64(1e300)),
        ("texts", Value::Array(Values::Strings(texts))),
        ("floats", Value::Array(Values::Numbers(NumberType::F32, vec![0; 12]))),
        ("nested", Value::Array(nested)),
    ]
    .map(|(key, value)| (key.to_string(), value))
    .to_vec()
}

fn written(write: impl FnOnce(&Path) -> Result<()>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write(&path).unwrap();
    std::fs::read(path).unwrap()
}

fn safetensors_of(specs: &[TensorSpec]) -> Vec<u8> {
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    written(|path| write_safetensors(path, &metadata, specs, |index| content(&specs[index])))
}

fn gguf_of(specs: &[TensorSpec]) -> Vec<u8> {
    written(|path| write_gguf(path, &gguf_metadata(), specs, |index| content(&specs[index])))
}

/// Files that mutants are made of.
fn seeds() -> &'static [Vec<u8>] {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let small = specs(&[
            ("a", ElementType::F32, &[2, 3]),
            ("b", ElementType::BF16, &[5]),
            ("c", ElementType::U8, &[0, 4]),
        ]);
        let packed = specs(&[("a", ElementType::Q4_0, &[2, 32]), ("b", ElementType::F32, &[3])]);
        vec![
            safetensors_of(&small),
            gguf_of(&packed),
            safetensors_of(&every(|element| element.safetensors().is_some())),
            gguf_of(&every(|element| element.gguf().is_some())),
        ]
    })
}

#[test]
fn every_type_is_written_and_read() {
    for (bytes, format) in [(&seeds()[2], Format::Safetensors), (&seeds()[3], Format::Gguf)] {
        assert_eq!(Format::of(bytes), Some(format));
        let file = TensorFile::from_bytes(bytes.clone()).unwrap();
        let had = |it: &ElementType| match format {
            Format::Safetensors => it.safetensors().is_some(),
            Format::Gguf => it.gguf().is_some(),
        };
        assert_eq!(file.tensors().len(), ElementType::ALL.iter().filter(|it| had(it)).count());
        for tensor in file.tensors() {
            let spec = TensorSpec {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                element: tensor.element,
            };
            assert_eq!(file.bytes(&tensor.name).unwrap(), &*content(&spec).unwrap(), "{}", tensor.name);
            assert_eq!(tensor.shape, [2, 256]);
            match file.to_f32(&tensor.name) {
                Ok(decoded) => assert_eq!(decoded.len(), 512),
                Err(error) => assert!(matches!(error, Error::DType(_)), "{error}"),
            }
        }
        if format == Format::Gguf {
            assert_eq!(file.metadata(), gguf_metadata());
        }
    }
}

#[test]
fn what_is_encoded_is_near() {
    let numbers = numbers(512);
    let bytes = gguf_of(&every(|element| encode(element, &[0.0; 32]).is_ok()));
    let file = TensorFile::from_bytes(bytes).unwrap();
    assert_eq!(file.tensors().len(), 6);
    for tensor in file.tensors() {
        let decoded = file.to_f32(&tensor.name).unwrap();
        let worst = decoded.iter().zip(&numbers).map(|(a, b)| (a - b).abs());
        let allowed = match tensor.element {
            ElementType::F64 | ElementType::F32 => 0.0,
            ElementType::F16 => 3e-4,
            ElementType::BF16 => 2e-3,
            ElementType::Q8_0 => 5e-3,
            _ => 0.13,
        };
        let worst = worst.fold(0.0, f32::max);
        assert!(worst <= allowed, "{}: {worst}", tensor.name);
    }
    assert!(matches!(encode(ElementType::Q4_0, &[f32::NAN; 32]), Err(Error::NonFinite(_))));
    assert!(matches!(encode(ElementType::Q4_0, &[1.0; 31]), Err(Error::Shape(_))));
    assert_eq!(decode(ElementType::I8, &[1, 255]).unwrap(), [1.0, -1.0]);
    assert!(matches!(decode(ElementType::Q4_0, &[0; 19]), Err(Error::Shape(_))));
    assert!(matches!(encode(ElementType::Q6_K, &[1.0; 256]), Err(Error::DType(_))));
}

/// The message of a file that is refused.
fn refused(bytes: &[u8]) -> String {
    match TensorFile::from_bytes(bytes.to_vec()) {
        Err(Error::Serialization(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn safetensors_that_lie_are_refused() {
    let entry = |name: &str, dtype: &str, shape: &str, from: u64, to: u64| {
        format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{from},{to}]}}")
    };
    let of =
        |entries: &[String], data: usize| refused(&with_header(&format!("{{{}}}", entries.join(",")), data));
    let a = entry("a", "F32", "[2]", 0, 8);
    for (message, says) in [
        (of(&[a.clone(), entry("b", "F32", "[2]", 4, 12)], 12), "overlaps"),
        (of(&[a.clone(), entry("b", "F32", "[2]", 12, 20)], 20), "belong to no tensor"),
        (of(std::slice::from_ref(&a), 9), "belong to no tensor"),
        (of(std::slice::from_ref(&a), 7), "beyond the end"),
        (of(&[a.clone(), a.clone()], 8), "there twice"),
        (of(&[entry("a", "F32", "[3]", 0, 8)], 8), "other bytes"),
        (of(&[entry("a", "F32", "[2]", 8, 0)], 8), "other bytes"),
        (of(&[entry("a", "F32", "[4294967296,4294967296,4294967296]", 0, 8)], 8), "other bytes"),
        (of(&[entry("a", "F32", "[0,4294967296,4294967296,4294967296]", 0, 0)], 0), "other bytes"),
        (of(&[entry("a", "F32", "[2]", u64::MAX - 7, u64::MAX)], 8), "beyond the end"),
        (of(&[entry("a", "F32", "[-1]", 0, 8)], 8), "header"),
        (of(&[entry("a", "F77", "[2]", 0, 8)], 8), "F77"),
        (of(&[r#""__metadata__":{"a":"b","a":"c"}"#.into()], 0), "there twice"),
        (of(&[r#""__metadata__":{"a":1}"#.into()], 0), "header"),
        (of(&[format!("\"a\":{{\"more\":{}", "[".repeat(100_000))], 0), "header"),
        (refused(&with_header("[1]", 0)), "neither"),
        (refused(&[&u64::MAX.to_le_bytes()[..], b"{}"].concat()), "neither"),
        (refused(&[&100u64.to_le_bytes()[..], b"{}"].concat()), "neither"),
        (refused(b""), "neither"),
    ] {
        assert!(message.contains(says), "{message:?} does not say {says:?}");
    }
}

#[test]
fn gguf_that_lies_is_refused() {
    let good = &seeds()[1];
    let at = |needle: &[u8]| good.windows(needle.len()).position(|window| window == needle).unwrap();
    let with = |place: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[place..place + bytes.len()].copy_from_slice(bytes);
        refused(&file)
    };
    // The first tensor: its name, axes, extents, type and offset; then the second.
    let first = at(b"\x01\0\0\0\0\0\0\0a\x02\0\0\0") + 9;
    let second = at(b"\x01\0\0\0\0\0\0\0b\x01\0\0\0") + 9;
    let far = u64::MAX.to_le_bytes();
    for (message, says) in [
        (with(4, &1u32.to_le_bytes()), "version 1"),
        (with(4, &3u32.to_be_bytes()), "big-endian"),
        (with(4, &9u32.to_le_bytes()), "version 9"),
        (with(8, &far), "too short"),
        (with(16, &far), "too short"),
        (with(24, &far), "too short"),
        (with(at(b"general.alignment") + 21, &48u32.to_le_bytes()), "power of two"),
        (with(at(b"general.alignment") + 21, &(1u32 << 30).to_le_bytes()), "too large"),
        (with(at(b"u8") + 2, &99u32.to_le_bytes()), "unknown type"),
        (with(at(b"i8"), b"u8"), "there twice"),
        (with(at(b"bool") + 8, &[7]), "truth value"),
        (with(at(b"floats") + 14, &far), "too short"),
        (with(at(b"texts") + 13, &(1u64 << 40).to_le_bytes()), "too short"),
        (with(first, &900u32.to_le_bytes()), "axes"),
        (with(first + 4, &33u64.to_le_bytes()), "whole blocks"),
        (with(first + 4, &(1u64 << 62).to_le_bytes()), "too large"),
        (with(first + 12, &(1u64 << 40).to_le_bytes()), "beyond the end"),
        (with(first + 20, &4u32.to_le_bytes()), "type 4"),
        (with(second + 16, &1u64.to_le_bytes()), "no multiple"),
        (with(second + 16, &0u64.to_le_bytes()), "overlaps"),
        (with(second + 16, &(1u64 << 40).to_le_bytes()), "beyond the end"),
        (with(second - 1, b"a"), "there twice"),
        (refused(&good[..good.len() - 60]), "beyond the end"),
    ] {
        assert!(message.contains(says), "{message:?} does not say {says:?}");
    }
    // Arrays in arrays, and so on.
    let mut deep =
        [b"GGUF".as_slice(), &3u32.to_le_bytes(), &0u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    deep.extend([&1u64.to_le_bytes(), b"k".as_slice(), &9u32.to_le_bytes()].concat());
    (0..100_000).for_each(|_| deep.extend([&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat()));
    assert!(refused(&deep).contains("deep"));
}

#[test]
fn parts_are_one_file_and_an_index_stays_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let part =
        |name: &str, tensors: &[TensorSpec]| std::fs::write(at(name), safetensors_of(tensors)).unwrap();
    part("m-1.safetensors", &specs(&[("a", ElementType::F32, &[2])]));
    part("m-2.safetensors", &specs(&[("b", ElementType::F16, &[3]), ("c", ElementType::I8, &[4])]));
    // Without an index, all there are.
    assert_eq!(TensorFile::open(folder.path()).unwrap().tensors().len(), 3);
    let index = at("model.safetensors.index.json");
    let open = |map: &str| {
        std::fs::write(&index, format!("{{\"metadata\": {{\"total_size\": 14}}, \"weight_map\": {map}}}"))
            .unwrap();
        TensorFile::open(&index)
    };
    let file = open(r#"{"a": "m-1.safetensors", "b": "m-2.safetensors"}"#).unwrap();
    let names: Vec<&str> = file.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(file.to_f32("a").unwrap(), numbers(2));
    assert!(file.metadata().contains(&("total_size".into(), Value::String("14".into()))));
    assert_eq!(TensorFile::open(folder.path()).unwrap().tensors().len(), 2);
    assert!(matches!(file.bytes("none"), Err(Error::Index(_))));
    for (map, says) in [
        (r#"{"a": "../m-1.safetensors"}"#, "not a file beside it"),
        (r#"{"a": "/etc/passwd"}"#, "not a file beside it"),
        (r#"{"a": "x/m-1.safetensors"}"#, "not a file beside it"),
        (r#"{"a": "m-2.safetensors"}"#, "lacks \"a\""),
        (r#"{"a": 1}"#, "no index"),
    ] {
        let error = open(map).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    }
    assert!(matches!(open(r#"{"a": "none.safetensors"}"#), Err(Error::Io { .. })));
    std::fs::remove_file(&index).unwrap();
    part("m-3.safetensors", &specs(&[("a", ElementType::F32, &[2])]));
    assert!(TensorFile::open(folder.path()).unwrap_err().to_string().contains("there twice"));
    assert!(matches!(TensorFile::open(at("none")), Err(Error::Io { .. })));
    #[cfg(unix)]
    assert!(TensorFile::open("/dev/zero").unwrap_err().to_string().contains("device"));
}

#[test]
fn gguf_in_several_files_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let part = |place: u16, name: &str| {
        let metadata = [
            ("split.no".to_string(), Value::U16(place)),
            ("split.count".to_string(), Value::U16(2)),
            (format!("only.{place}"), Value::Bool(true)),
        ];
        let tensors = specs(&[(["a", "b"][usize::from(place)], ElementType::F32, &[2])]);
        let path = folder.path().join(name);
        write_gguf(&path, &metadata, &tensors, |index| content(&tensors[index])).unwrap();
        path
    };
    let first = part(0, "m-00001-of-00002.gguf");
    assert!(matches!(TensorFile::open(&first), Err(Error::Io { .. })));
    let second = part(1, "m-00002-of-00002.gguf");
    for path in [first, second] {
        let file = TensorFile::open(path).unwrap();
        assert_eq!(file.tensors().iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(file.to_f32("b").unwrap(), numbers(2));
        assert_eq!(file.metadata().len(), 4);
    }
    let other = part(0, "renamed.gguf");
    assert!(TensorFile::open(other).unwrap_err().to_string().contains("one of 2 files"));
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "old").unwrap();
    let tensors = specs(&[("a", ElementType::F32, &[2])]);
    let none = BTreeMap::new();
    let fails = |bytes: Result<Cow<'static, [u8]>>| {
        let mut bytes = Some(bytes);
        write_safetensors(&path, &none, &tensors, |_| bytes.take().unwrap()).unwrap_err()
    };
    assert!(fails(Ok(Cow::Owned(vec![0; 7]))).to_string().contains("7 bytes"));
    assert!(fails(Err(Error::State("stopped".into()))).to_string().contains("stopped"));
    let twice = [tensors[0].clone(), tensors[0].clone()];
    assert!(write_gguf(&path, &[], &twice, |_| Ok(Cow::Owned(vec![0; 8]))).is_err());
    let packed = specs(&[("a", ElementType::Q4_0, &[2, 31])]);
    assert!(write_gguf(&path, &[], &packed, |index| content(&packed[index])).is_err());
    assert!(write_safetensors(&path, &none, &packed, |index| content(&packed[index])).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Draws that are the same for the same seed: xorshift64*.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit.max(1)
    }
}

/// Numbers that parsers stumble over.
const ODD: [u64; 12] =
    [0, 1, 2, 7, 31, 64, 255, u16::MAX as u64, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX];

/// A valid file, changed in a few places, mostly in its header.
fn mutant(seed: u64) -> Vec<u8> {
    let mut draws = Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut file = seeds()[draws.below(seeds().len())].clone();
    for _ in 0..=draws.below(4) {
        let reach = if draws.below(4) == 0 { file.len() } else { file.len().min(600) };
        let place = draws.below(reach.max(1));
        let odd = ODD[draws.below(ODD.len())];
        match draws.below(9) {
            0 => file[place..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << draws.below(8)),
            1 => file[place..].iter_mut().take(1).for_each(|byte| *byte = draws.below(256) as u8),
            2 => file[place..].iter_mut().zip(odd.to_le_bytes()).for_each(|(byte, odd)| *byte = odd),
            3 => file[place..].iter_mut().zip((odd as u32).to_le_bytes()).for_each(|(byte, odd)| *byte = odd),
            4 => file.truncate(place),
            5 => drop(file.drain(place..(place + 1 + draws.below(16)).min(file.len()))),
            6 => {
                let piece = file[place..(place + 1 + draws.below(40)).min(file.len())].to_vec();
                file.splice(place..place, piece);
            }
            7 => {
                // A number in the header's text becomes another one.
                let digits = |byte: &u8| byte.is_ascii_digit();
                if let Some(from) = file[place..].iter().position(digits).map(|from| from + place) {
                    let run = file[from..].iter().take_while(|byte| digits(byte)).count();
                    file.splice(from..from + run, odd.to_string().into_bytes());
                }
            }
            _ => {
                let text =
                    [&b"\""[..], b"{", b"}", b"[", b",", b":", b"F32", b"\\u0000", b"GGUF"][draws.below(9)];
                file.splice(place..place, text.iter().copied());
            }
        }
        if file.is_empty() {
            break;
        }
    }
    file
}

/// Reads a mutant and everything in it; says whether it could be read.
fn read_mutant(seed: u64) -> bool {
    let file = mutant(seed);
    let len = file.len();
    let before = HELD.get();
    PEAK.set(before);
    let opened = TensorFile::from_bytes(file);
    let peak = PEAK.get() - before;
    assert!(peak < 4096 + 64 * len as isize, "mutant {seed} of {len} bytes took {peak} bytes");
    let file = match opened {
        Ok(file) => file,
        Err(Error::Serialization(_)) => return false,
        Err(other) => panic!("mutant {seed}: {other:?}"),
    };
    let total: usize = file.tensors().iter().map(|tensor| tensor.bytes()).sum();
    assert!(total <= len, "mutant {seed} has more bytes of tensors than bytes");
    for tensor in file.tensors() {
        assert_eq!(file.bytes(&tensor.name).unwrap().len(), tensor.bytes());
        match file.to_f32(&tensor.name) {
            Ok(numbers) => assert_eq!(numbers.len(), tensor.shape.iter().product::<usize>()),
            Err(error) => assert!(matches!(error, Error::DType(_)), "mutant {seed}: {error:?}"),
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_file_holds_reading_it_ends_well(seed: u64) {
        read_mutant(seed);
    }
}

/// `LOOM_MUTANTS=10000000 cargo test --release --test tensor_files -- --ignored --nocapture`
#[test]
#[ignore = "minutes"]
fn many_mutants_end_well() {
    let count = std::env::var("LOOM_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let read = (0..count).filter(|seed| read_mutant(*seed)).count();
    println!("{count} mutants, {read} of which could be read");
}
