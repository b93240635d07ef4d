//! Networks as files: what is read is saved again, and that is read as the same.

use super::{documented, limits, read};
use loom::Network;
use loom::io::SaveOptions;
use loom::mesh::Mesh;
use serde_json::Value;

/// What a network of nothing takes, and a cell of a grid, whether or not it has layers.
const BESIDE: usize = 1 << 18;
const CELL: usize = 128;

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
    let allowed = BESIDE + 32 * file.len() + CELL * cells(file).unwrap_or(0);
    let Some(mut network) = limits::within(allowed, || read(Network::from_bytes(file))) else { return };
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

/// How many cells the grid has that a file speaks of.
fn cells(file: &[u8]) -> Option<usize> {
    let header = serde_json::Deserializer::from_slice(file.get(8..)?).into_iter::<Value>().next()?.ok()?;
    let config: Value = serde_json::from_str(header["__metadata__"]["loom.config"].as_str()?).ok()?;
    let extents = config["grid"].as_array()?.iter().filter_map(Value::as_u64);
    let cells = extents.fold(1, |cells: u64, extent| cells.saturating_mul(extent));
    usize::try_from(cells).ok().filter(|cells| *cells <= 1 << 20)
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
