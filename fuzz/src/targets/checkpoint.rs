//! Networks as files: what is read is saved again, and that is read as the same.

use super::{documented, limits, read};
use loom::Network;
use loom::io::SaveOptions;
use loom::mesh::Mesh;
use serde_json::Value;

/// What a network of nothing takes.
const BESIDE: usize = 1 << 18;

/// The most data that a header may ask for when a file is mended.
const LONGEST: u64 = 1 << 20;

/// Reads a file as it is, then as it would be if its lengths and checksums were right.
pub fn target(data: &[u8]) {
    check(data);
    if let Some(mended) = mended(data).filter(|mended| mended != data) {
        check(&mended);
    }
}

/// Reads a file, as a network and as a mesh, and saves what it holds.
pub fn check(file: &[u8]) {
    let Some(mut network) = limits::within(BESIDE + 32 * file.len(), || read(Network::from_bytes(file)))
    else {
        return;
    };
    documented(network.summary_rows());
    for options in [SaveOptions::default(), SaveOptions::resumable(), SaveOptions::deployable()] {
        let Some(saved) = documented(network.to_bytes(options)) else { continue };
        let mut again = Network::from_bytes(&saved).expect("what was saved is read");
        let saved_again = again.to_bytes(options).expect("what was saved and read is saved");
        assert!(saved == saved_again, "a network that was read is saved as another one, with {options:?}");
    }
    assert!(network.to_bytes(SaveOptions::default()).is_ok(), "what was read is saved");
    read(Mesh::from_bytes(file));
}

/// The file with the header's length, the data's, and all checksums made right, where its header is JSON.
fn mended(data: &[u8]) -> Option<Vec<u8>> {
    let text = data.get(8..)?;
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let header = values.next()?.ok()?;
    let end = values.byte_offset();
    let spaces = text.get(end..)?.iter().take_while(|byte| **byte == b' ').count();
    let (mut header_bytes, rest) = (text.get(..end)?.to_vec(), text.get(end + spaces..)?);
    header_bytes.resize(header_bytes.len().next_multiple_of(8), b' ');
    let mut file = (header_bytes.len() as u64).to_le_bytes().to_vec();
    file.extend(&header_bytes);
    let range = |entry: &Value| {
        let offset = |place: usize| entry.get("data_offsets")?.get(place)?.as_u64();
        Some((offset(0)?, offset(1)?)).filter(|(from, to)| from <= to && *to <= LONGEST)
    };
    let mut ranges: Vec<(usize, usize, bool)> = Vec::new();
    for (name, entry) in header.as_object()?.iter().filter(|(name, _)| *name != "__metadata__") {
        let (from, to) = range(entry)?;
        ranges.push((from as usize, to as usize, name == "loom.checksums"));
    }
    ranges.sort_unstable();
    let mut body = rest.to_vec();
    body.resize(ranges.iter().map(|range| range.1).max().unwrap_or(0), 0);
    let sums = ranges.iter().filter(|range| !range.2).map(|range| crc32fast::hash(&body[range.0..range.1]));
    let sums: Vec<u8> =
        std::iter::once(crc32fast::hash(&file)).chain(sums).flat_map(u32::to_le_bytes).collect();
    if let Some((from, to, _)) =
        ranges.iter().find(|range| range.2).filter(|range| range.1 - range.0 == sums.len())
    {
        body[*from..*to].copy_from_slice(&sums);
    }
    file.extend(body);
    Some(file)
}
