//! Elements of every type that files have, decoded and encoded.

use super::{documented, limits};
use loom::io::{ElementType, decode, encode};

/// The first byte chooses the type, the others are the elements.
pub fn target(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let element = ElementType::ALL[usize::from(*first) % ElementType::ALL.len()];
    let numbers = limits::within((1 << 16) + 32 * bytes.len(), || documented(decode(element, bytes)));
    if let Some(numbers) = numbers {
        let blocks = bytes.len() / element.block_bytes();
        assert_eq!(numbers.len(), blocks * element.block(), "{}", element.name());
        if let Some(packed) = documented(encode(element, &numbers)) {
            assert_eq!(packed.len(), bytes.len(), "{}", element.name());
            let again = decode(element, &packed).expect("what was encoded is decoded");
            assert_eq!(again.len(), numbers.len(), "{}", element.name());
        }
    }
}
