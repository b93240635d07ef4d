//! Weights of other programs' files, lent to layers in the numeric types that say exactly what the files say.

use super::tensor_file::{ElementType, Grouped, grouped};
use crate::Result;
use crate::dtype::{DType, Granularity, Recipe};
use crate::network::{Coordinates, Network};
use crate::tensor::Buffer;
use crate::weights::{Layout, Lent, LentParameter, LentRows, SharedBytes};
use crate::{Error, error};

/// File rows that are turned round together: what is written of each input fills a cache line.
const TOGETHER: usize = 64;

/// A parameter as rows of tensors of files, each of which is what one output reads, or a vector of a table.
pub struct FileRows {
    /// The parameter's name in the layer.
    pub name: String,
    /// What the elements are in the file.
    pub element: ElementType,
    /// The tensors' bytes.
    pub tensors: Vec<SharedBytes>,
    /// The rows, each by its tensor and its number there.
    pub order: Vec<(u32, u32)>,
}

impl FileRows {
    /// Whether elements of this type can be lent: those of which loom has a numeric type that holds the same numbers.
    pub fn serves(element: ElementType) -> bool {
        as_they_lie(element).is_some() || halves(element).is_some() || grouped(element).is_some()
    }
}

/// The type whose blocks are, byte for byte, the file's.
fn as_they_lie(element: ElementType) -> Option<DType> {
    match element {
        ElementType::Q4_0 => Some(DType::Q4_0),
        ElementType::Q8_0 => Some(DType::Q8_0),
        _ => None,
    }
}

/// The type of 16 bits that the file has, too.
fn halves(element: ElementType) -> Option<DType> {
    match element {
        ElementType::F16 => Some(DType::Float16),
        ElementType::BF16 => Some(DType::BFloat16),
        _ => None,
    }
}

impl Network {
    /// [`lend`](Network::lend) of rows of files. Blocks that are loom's own are read where they lie; other types are
    /// brought to the order that loom computes in when they are first read, without a change of any number.
    ///
    /// # Errors
    /// As [`lend`](Network::lend), and [`Error::DType`] for elements that cannot be lent.
    pub fn lend_rows(&mut self, cell: Coordinates, layer: usize, parts: Vec<FileRows>) -> Result<()> {
        self.build()?;
        let mut lent = Vec::with_capacity(parts.len());
        for part in parts {
            let weights = self.weights(cell, layer)?;
            let known = weights.iter().flat_map(|weights| weights.parameters());
            let Some(info) = known.clone().find(|info| info.name == part.name) else {
                return Err(error::unknown("parameter", &part.name, known.map(|info| &*info.name)));
            };
            let table = matches!(info.layout, Layout::Table(_));
            let inputs = info.len() / part.order.len().max(1);
            lent.push(parameter(part, inputs, table)?);
        }
        self.lend(cell, layer, &lent)
    }
}

/// A parameter whose rows have so many elements.
fn parameter(part: FileRows, inputs: usize, table: bool) -> Result<LentParameter> {
    let FileRows { name, element, tensors, order } = part;
    let misfit =
        || Error::Serialization(format!("\"{name}\" has other rows than those of {}", element.name()));
    let bytes = element.bytes(&[1, inputs]).ok_or_else(misfit)?;
    let rows = LentRows::new(tensors, bytes, order)?;
    let recipe = Recipe::default();
    if let Some(dtype) = as_they_lie(element) {
        return Ok(LentParameter { name, dtype, recipe, by_rows: table, content: rows.as_they_lie()? });
    }
    if let Some(dtype) = halves(element) {
        let content =
            if table { rows.as_they_lie()? } else { Lent::made(move || turned_halves(&rows, inputs)) };
        return Ok(LentParameter { name, dtype, recipe, by_rows: false, content });
    }
    let Some(grouped) = grouped(element) else {
        return Err(Error::DType(format!("elements of {} are not lent, but decoded", element.name())));
    };
    let (dtype, granularity) = (grouped.dtype, Granularity::Block(grouped.elements));
    let recipe = Recipe { granularity: Some(granularity), ..recipe };
    let content = Lent::made(move || turned_integers(&rows, inputs, element, grouped));
    Ok(LentParameter { name, dtype, recipe, by_rows: table, content })
}

/// Elements of 16 bits, those of one row after the other's from the file, input by input.
fn turned_halves(rows: &LentRows, inputs: usize) -> Result<(Buffer, Buffer)> {
    let channels = rows.count();
    let mut codes = Buffer::lasting(channels * inputs * size_of::<u16>())?;
    let to = codes.as_mut_slice::<u16>();
    for first in (0..channels).step_by(TOGETHER) {
        let last = channels.min(first + TOGETHER);
        let some: Vec<&[u8]> = (first..last).map(|number| rows.row(number)).collect();
        for input in 0..inputs {
            for (to, row) in to[input * channels + first..].iter_mut().zip(&some) {
                *to = u16::from_le_bytes([row[2 * input], row[2 * input + 1]]);
            }
        }
    }
    Ok((codes, Buffer::default()))
}

/// Integers with a scale for each group, and a minimum if there is one, input by input.
fn turned_integers(
    rows: &LentRows,
    inputs: usize,
    element: ElementType,
    grouped: Grouped,
) -> Result<(Buffer, Buffer)> {
    let (channels, words) = (rows.count(), grouped.words());
    let (groups, of_block) = (inputs / grouped.elements, element.block() / grouped.elements);
    let bits = grouped.dtype.row().bits;
    let mut codes = Buffer::lasting(grouped.dtype.storage_bytes(channels * inputs))?;
    let mut fits = Buffer::of::<f32>(channels * groups * words)?;
    let (to, fits_to) = (codes.bytes_mut(), fits.as_mut_slice::<f32>());
    let mut own = Buffer::of::<u8>(TOGETHER * inputs)?;
    let mut own_fits = Buffer::of::<f32>(TOGETHER * groups * words)?;
    for first in (0..channels).step_by(TOGETHER) {
        let count = TOGETHER.min(channels - first);
        let (own, own_fits) = (own.as_mut_slice::<u8>(), own_fits.as_mut_slice::<f32>());
        for number in 0..count {
            let blocks = rows.row(first + number).chunks_exact(element.block_bytes());
            let codes = own[number * inputs..][..inputs].chunks_exact_mut(element.block());
            let fits = own_fits[number * groups * words..].chunks_exact_mut(of_block * words);
            blocks.zip(codes.zip(fits)).for_each(|(block, (codes, fits))| (grouped.read)(block, codes, fits));
        }
        for input in 0..inputs {
            let codes = own[input..].iter().step_by(inputs).take(count);
            write_codes(to, bits, input * channels + first, codes);
        }
        for place in 0..groups {
            let to = &mut fits_to[(place * channels + first) * words..][..count * words];
            for (to, own) in to.chunks_exact_mut(words).zip(own_fits.chunks_exact(groups * words)) {
                to.copy_from_slice(&own[place * words..][..words]);
            }
        }
    }
    Ok((codes, fits))
}

/// Writes codes of so many bits, from element `first` on, to where there are zeros.
fn write_codes<'a>(to: &mut [u8], bits: usize, first: usize, codes: impl ExactSizeIterator<Item = &'a u8>) {
    if bits == 8 {
        for (to, code) in to[first..].iter_mut().zip(codes) {
            *to = *code;
        }
        return;
    }
    for (number, code) in codes.enumerate() {
        let bit = (first + number) * bits;
        to[bit / 8] |= code << (bit % 8);
    }
}
