//! Sessions: inference that goes on from where its last call ended.

use super::predict::check_rows;
use super::programs::ProgramKey;
use super::{Mode, Network, SessionExtent};
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, Phase, Run};
use crate::simd::Real;
use crate::state::Carried;
use crate::tensor::{Shape, Tensor, TensorView};
use crate::{Error, Result, extents};

/// The most steps that go through the network at once; longer inputs are cut. Powers of two, so
/// that any length is made of few programs.
const MOST_STEPS: usize = 64;

/// Inference over sequences that arrive piece by piece: attention keeps the keys and values it has
/// seen, recurrent layers their state.
///
/// The network must not change between the calls of one session; where its weights have moved or it
/// has changed its device, the next call is refused.
#[derive(Debug)]
pub struct Session {
    rows: usize,
    capacity: usize,
    position: usize,
    carried: Carried,
    epoch: u64,
    device: crate::Device,
    /// Whether there is an output for every step.
    sequences: bool,
    /// A run for each number of steps that has been needed.
    runs: Vec<(usize, Run)>,
}

impl Network {
    /// A session over `rows` sequences of at most `capacity` steps.
    ///
    /// The network's input must have a time axis first, (time, ...): how many steps a call brings is
    /// then up to the caller.
    ///
    /// # Errors
    /// [`Error::Value`] for no rows or no capacity; [`Error::Shape`] where the layers do not work on
    /// sequences of any length; [`Error::State`] naming a layer or a link that needs whole ones.
    pub fn session(&mut self, rows: usize, capacity: usize) -> Result<Session> {
        self.build()?;
        self.check_single("a session")?;
        if rows == 0 || capacity == 0 {
            return Err(Error::Value("a session needs at least one row and one step".into()));
        }
        let [one, two] = [self.infer_shapes_for(1)?, self.infer_shapes_for(2)?];
        self.check_links_are_stepwise(&one, &two)?;
        // Without a time axis there is one output, that of the last step.
        let steps = |cells: &[Shape]| cells.last().and_then(|output| output.first().copied());
        let sequences = steps(&one) == Some(1) && steps(&two) == Some(2);
        let extent = SessionExtent { steps: 1, capacity };
        let mode = Mode { session: Some(extent), ..Mode::default() };
        let carried = Carried::new(
            self.carried_places(mode),
            rows,
            self.precision,
            self.device.accelerator().as_ref(),
        )?;
        let device = self.device.clone();
        let epoch = self.registry.epoch();
        Ok(Session { rows, capacity, position: 0, carried, epoch, device, sequences, runs: Vec::new() })
    }
}

impl Session {
    /// Steps seen so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The most steps there may be in all.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sequences side by side.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Forgets everything seen; weights that have moved since are taken up.
    pub fn reset(&mut self, network: &Network) -> Result<()> {
        if !self.device.is_same(&network.device) {
            return Err(Error::State("the network has moved to another device; begin a new session".into()));
        }
        self.carried.reset()?;
        self.position = 0;
        self.epoch = network.registry.epoch();
        self.runs.clear();
        Ok(())
    }

    /// The output for the next steps: (rows, steps, ...) to (rows, steps, ...).
    ///
    /// # Errors
    /// [`Error::Shape`] for input that does not fit, [`Error::State`] past the session's capacity or
    /// after the network has changed, [`Error::Value`] and [`Error::NonFinite`] for bad input.
    pub fn advance(&mut self, network: &Network, input: TensorView<'_>) -> Result<Tensor> {
        in_precision!(network.precision, T => self.advance_in::<T>(network, input))
    }

    fn check(&self, network: &Network, input: &TensorView<'_>) -> Result<usize> {
        network.check_built()?;
        if self.epoch != network.registry.epoch() || !self.device.is_same(&network.device) {
            return Err(Error::State(
                "the network has changed since the session began; reset the session or begin a new one"
                    .into(),
            ));
        }
        let steps = input.shape().get(1).copied().unwrap_or(0);
        let mut expected = network.input_shape.to_vec();
        if let Some(first) = expected.first_mut() {
            *first = steps;
        }
        check_rows(input, &Shape::new(expected), "input")?;
        if input.rows() != self.rows || steps == 0 {
            return Err(Error::Shape(format!(
                "the session holds {} rows and takes at least one step, got {} rows and {steps} steps",
                self.rows,
                input.rows()
            )));
        }
        if steps > self.capacity - self.position {
            return Err(Error::State(format!(
                "{steps} more steps after {} are more than the session's capacity of {}; begin one with a \
                 larger capacity",
                self.position, self.capacity
            )));
        }
        crate::tensor::check_finite(input, "input")?;
        network.check_step_indices(input)?;
        Ok(steps)
    }

    fn advance_in<T: Real>(&mut self, network: &Network, input: TensorView<'_>) -> Result<Tensor> {
        let steps = self.check(network, &input)?;
        network.passes.note();
        let width = input.elements().len() / self.rows / steps;
        let mut all = extents::zeros(input.elements().len())?;
        input.copy_to(&mut all);
        let mut output: Vec<T> = Vec::new();
        let mut shape = Vec::new();
        let mut done = 0;
        while done < steps {
            // The largest power of two that fits, so that a prompt of any length needs few programs.
            let left = steps - done;
            let count = (1 << left.ilog2()).min(MOST_STEPS);
            let part = |row: usize| &all[(row * steps + done) * width..][..count * width];
            let run = self.run(network, count)?;
            if let Some(port) = run.program().ports().input {
                for (row, to) in run.write::<T>(port).chunks_exact_mut(count * width).enumerate() {
                    to.copy_from_slice(part(row));
                }
            }
            let values =
                StepValues { seed: network.seed, position: self.position as u64, ..StepValues::default() };
            let Some((_, run)) = self.runs.iter_mut().find(|(held, _)| *held == count) else {
                return Err(Error::Internal("a session lost its run".into()));
            };
            let access = Access::Session(&network.registry, &mut self.carried);
            run.execute(access, Phase::Forward..=Phase::Forward, &values)?;
            let Some(port) = run.program().ports().output else {
                return Err(Error::Internal("a program lacks its output".into()));
            };
            run.fetch(&[port])?;
            let made = run.read::<T>(port);
            let row_len = made.len() / self.rows;
            if done == 0 {
                shape = run.program().value(port).shape.to_vec();
                if !self.sequences {
                    shape.insert(0, 0);
                }
                output = extents::zeros(if shape[0] == 0 {
                    made.len()
                } else {
                    extents::elements("the output", steps, made.len() / count)?
                })?;
            }
            if shape[0] == 0 {
                output.copy_from_slice(made);
            } else {
                let per_step = row_len / count;
                for (row, from) in made.chunks_exact(row_len).enumerate() {
                    output[(row * steps + done) * per_step..][..row_len].copy_from_slice(from);
                }
            }
            self.position += count;
            done += count;
        }
        let mut extents = vec![self.rows];
        if shape[0] == 0 {
            extents.extend_from_slice(&shape[1..]);
        } else {
            extents.push(steps);
            extents.extend_from_slice(&shape[1..]);
        }
        Tensor::new(extents, output)
    }

    /// The run for this many steps at a time.
    fn run(&mut self, network: &Network, steps: usize) -> Result<&mut Run> {
        let place = match self.runs.iter().position(|(held, _)| *held == steps) {
            Some(place) => place,
            None => {
                let session = Some(SessionExtent { steps, capacity: self.capacity });
                let mode = Mode { session, ..Mode::default() };
                let key = ProgramKey::forward(mode, self.rows);
                let mut run =
                    network.programs.lease(&key, &network.device, || network.compile_session(&key, steps))?;
                run.rows = self.rows;
                self.runs.push((steps, run));
                self.runs.len() - 1
            }
        };
        Ok(&mut self.runs[place].1)
    }
}
