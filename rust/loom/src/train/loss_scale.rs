//! Whether losses are scaled, and by what.

use crate::network::Network;
use crate::state::LossScale;
use crate::tensor::Precision;

impl Network {
    /// Whether gradients are computed of a scaled loss: in a mixed network on a GPU.
    pub(crate) fn scales_loss(&self) -> bool {
        self.precision == Precision::Mixed && !self.device.is_host()
    }

    /// What the loss is scaled by now, where it is: in a mixed network on a GPU.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.scales_loss().then_some(self.optimizer_state.loss_scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;

    /// The device doubles the scale in the middle of a frame, as the host says.
    #[test]
    fn it_doubles_on_a_gpu_after_many_good_steps() -> Result<()> {
        use crate::layers::Dense;
        use crate::tensor_view;
        use crate::train::{Examples, LossConfig, TrainingConfig, train_with};
        if crate::Device::open("gpu", Precision::Float32).is_err() {
            return Ok(());
        }
        let input: Vec<f32> = (0..32).map(|i| (i as f32 * 0.37).sin() * 0.1).collect();
        let targets: Vec<f32> = input.chunks(2).map(|x| x[0] - x[1]).collect();
        let examples = Examples::regression(tensor_view(&[16, 2], &input)?, tensor_view(&[16, 1], &targets)?);
        let config = TrainingConfig {
            epochs: 4,
            batch_size: 1,
            loss: LossConfig::parse("mse")?,
            ..TrainingConfig::default()
        };
        let mut network = Network::with_options([2], [1, 1, 1], Precision::Mixed, 0)?;
        network.add([0, 0, 0], Dense::new(1))?;
        network.to("gpu")?;
        train_with(&mut network, &examples, None, &config, false, &mut ())?;
        assert_eq!(network.optimizer_state.loss_scale.good_steps, 64);
        network.optimizer_state.loss_scale.good_steps = LossScale::GROWTH_STEPS - 20;
        let config = TrainingConfig { epochs: 7, ..config };
        train_with(&mut network, &examples, None, &config, true, &mut ())?;
        let expected = LossScale { scale: 131_072.0, good_steps: 28, skipped_steps: 0 };
        assert_eq!(network.loss_scale(), Some(expected));
        network.to("cpu")?;
        assert_eq!(network.loss_scale(), None);
        Ok(())
    }
}
