//! What a trainer knows of frames, which take several steps at a time on a GPU.

use super::{Examples, Targets};
use crate::program::Resident;
use crate::tensor::{Elements, TensorView};
use crate::{Device, Result};
use std::borrow::Cow;

/// About how long a frame takes: drivers watch over the device, and people press Ctrl-C.
const FRAME_SECONDS: f64 = 0.05;
/// The most steps in one frame.
const MOST_STEPS: u64 = 4096;
/// The most bytes of outputs that a frame keeps for metrics.
pub(super) const MOST_OUTPUT_BYTES: usize = 64 << 20;

/// What a trainer knows of the frames it has run.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The examples on the device; `None` inside once they were found not to fit.
    pub(super) resident: Option<Option<Box<dyn Resident>>>,
    /// How long a step takes, once that is known.
    step_seconds: Option<f64>,
    /// Frames run; the first also compiles the kernels.
    run: u64,
}

impl Frames {
    /// How many steps the next one takes.
    pub(super) fn steps(&self) -> u64 {
        match self.step_seconds {
            Some(seconds) => ((FRAME_SECONDS / seconds) as u64).clamp(1, MOST_STEPS),
            None => [1, 8][self.run.min(1) as usize],
        }
    }

    /// Takes note of a frame of so many steps that has taken so many seconds.
    pub(super) fn note(&mut self, steps: usize, seconds: f64) {
        if self.run > 0 {
            self.step_seconds = Some((seconds / steps as f64).max(1e-7));
        }
        self.run += 1;
    }

    /// Copies the examples to the device unless they are there; whether they fit.
    pub(super) fn make_resident(
        &mut self,
        device: &Device,
        examples: &Examples<'_>,
        class_targets: bool,
    ) -> Result<bool> {
        if let Some(known) = &self.resident
            && known.as_ref().is_none_or(|resident| resident.rows() == examples.rows())
        {
            return Ok(known.is_some());
        }
        let input = single(&examples.input);
        let target: Cow<'_, [u8]> = match &examples.target {
            Targets::Classes { labels, .. } if class_targets => Cow::Borrowed(bytemuck::cast_slice(labels)),
            Targets::Classes { labels, .. } => {
                let numbers: Vec<f32> = labels.iter().map(|label| *label as f32).collect();
                Cow::Owned(bytemuck::cast_slice(&numbers).to_vec())
            }
            Targets::Real(view) => single(view),
        };
        let weight = examples.weight.as_ref().map(single);
        let arrays: Vec<&[u8]> =
            [Some(&input), Some(&target), weight.as_ref()].into_iter().flatten().map(|a| &**a).collect();
        self.resident = Some(match device.frames() {
            Some(frames) => frames.resident(examples.rows(), &arrays)?,
            None => None,
        });
        Ok(matches!(&self.resident, Some(Some(_))))
    }
}

/// An array in single precision.
fn single<'a>(view: &TensorView<'a>) -> Cow<'a, [u8]> {
    match view.elements() {
        Elements::Float32(elements) => Cow::Borrowed(bytemuck::cast_slice(elements)),
        Elements::Float64(elements) => {
            let converted: Vec<f32> = elements.iter().map(|x| *x as f32).collect();
            Cow::Owned(bytemuck::cast_slice(&converted).to_vec())
        }
    }
}
