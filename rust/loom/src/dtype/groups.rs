//! Which elements share a scale, and the scales of elements that follow each other.

use super::grouping::Extents;

/// Elements that are coded together, between a look-up of their scales and the packing of their bits.
pub(super) const RUN: usize = 256;

/// The scale of a group, and the code that stands for zero or what code zero stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Fit {
    /// S.
    pub scale: f32,
    /// z, or the bits of m, where the type has one.
    pub zero: u64,
}

impl Fit {
    /// Of a type with a minimum.
    #[inline(always)]
    pub fn of_minimum(scale: f32, minimum: f32) -> Self {
        Self { scale, zero: u64::from(minimum.to_bits()) }
    }

    /// The minimum, of a type that has one.
    #[inline(always)]
    pub fn minimum(self) -> f32 {
        f32::from_bits(self.zero as u32)
    }

    /// Into the words of a group.
    #[inline(always)]
    pub fn write(self, words: &mut [f32]) {
        let halves = [self.scale, f32::from_bits(self.zero as u32), f32::from_bits((self.zero >> 32) as u32)];
        words.copy_from_slice(&halves[..words.len()]);
    }

    /// From the words of a group.
    #[inline(always)]
    pub fn read(words: &[f32]) -> Self {
        let word = |number: usize| words.get(number).map_or(0, |word| u64::from(word.to_bits()));
        Fit { scale: words[0], zero: word(1) | word(2) << 32 }
    }
}

/// Where the scales of a parameter are: a group for each column of each so many rows.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Of the parameter as the groups see it.
    pub columns: usize,
    /// Rows of a group.
    pub block: usize,
}

impl Grid {
    pub fn of(packing: &Extents) -> Self {
        let (_, columns, block) = packing.groups_grid();
        Self { columns, block }
    }

    /// The group of an element.
    fn group(&self, element: usize) -> usize {
        element / self.columns / self.block * self.columns + element % self.columns
    }
}

/// The scales and zeros of elements that follow each other.
pub(super) struct Fits {
    scales: [f32; RUN],
    zeros: [u64; RUN],
}

impl Fits {
    pub const NEW: Self = Self { scales: [0.0; RUN], zeros: [0; RUN] };

    /// Those of `len` elements from `first` on, of groups of `per` words.
    #[inline(always)]
    pub fn fill(&mut self, per: usize, grid: Grid, words: &[f32], first: usize, len: usize) {
        if per == 0 {
            return;
        }
        let mut done = 0;
        while done < len {
            let element = first + done;
            let group = grid.group(element) * per;
            let start = done;
            if grid.columns == 1 {
                // The rest of a group.
                done = len.min(done + grid.block - element % grid.block);
                let fit = Fit::read(&words[group..][..per]);
                self.scales[start..done].fill(fit.scale);
                self.zeros[start..done].fill(fit.zero);
                continue;
            }
            done = len.min(done + grid.columns - element % grid.columns);
            let words = &words[group..][..(done - start) * per];
            if per == 1 {
                self.scales[start..done].copy_from_slice(words);
                continue;
            }
            let fits = self.scales[start..done].iter_mut().zip(&mut self.zeros[start..done]);
            for ((scale, zero), words) in fits.zip(words.chunks_exact(per)) {
                let fit = Fit::read(words);
                (*scale, *zero) = (fit.scale, fit.zero);
            }
        }
    }

    /// In order.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Fit> {
        self.scales.iter().zip(&self.zeros).map(|(scale, zero)| Fit { scale: *scale, zero: *zero })
    }
}
