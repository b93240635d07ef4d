//! Sessions: inference that goes on from where its last call ended.

pub(super) mod drawing;
mod kept;
pub(super) mod outputs;
pub(super) mod steps;

pub use self::drawing::Draws;
use self::outputs::Outputs;
use self::steps::{StepWidths, SteppingOutput};
use super::programs::ProgramKey;
use super::{Ending, Mode, Network, Pick, SessionExtent};
use crate::ops::{CacheType, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Phase, Run};
use crate::simd::Real;
use crate::state::Carried;
use crate::tensor::{Shape, Tensor, TensorView};
use crate::{Error, Result, extents};

/// The most steps that go through the network at once on a CPU, whose caches hold what so many make; longer inputs
/// are cut. Powers of two, so that any length is made of few programs.
const MOST_STEPS: usize = 64;
/// The same on a GPU, which more of them keep busy.
const MOST_STEPS_ON_GPUS: usize = 512;
/// Steps that a session goes on by itself in one frame, where one of them may be the last.
pub(super) const STEPS_OF_A_FRAME: usize = 8;
/// The most numbers of an output of all steps, where those decide.
const MOST_OUTPUTS: usize = 1 << 22;

/// Inference over sequences that arrive piece by piece: attention keeps the keys and values it has
/// seen, recurrent layers their state.
///
/// The network must not change between the calls of one session; where its weights have moved or it
/// has changed its device, the next call is refused.
#[derive(Debug)]
pub struct Session {
    rows: usize,
    capacity: usize,
    /// What keys and values are kept as.
    cache: CacheType,
    position: usize,
    carried: Carried,
    epoch: u64,
    device: crate::Device,
    /// What a step of each input holds.
    widths: StepWidths,
    /// What there is of outputs.
    outputs: Vec<SteppingOutput>,
    /// Whether each step has a part of its own in what is carried.
    by_place: bool,
    /// What was chosen last and for which place, as long as nothing else has been brought.
    newest: Option<(usize, Vec<usize>)>,
    /// A run for each part of an input that has been needed.
    runs: Vec<(Part, Run)>,
}

/// What goes through the network at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    steps: usize,
    ending: Ending,
}

impl Part {
    const ONE: Self = Self { steps: 1, ending: Ending::All };
}

/// How many of the steps that are left go through the network at once: the largest power of two that fits, so that a
/// prompt of any length needs few programs.
pub(super) fn part_of(left: usize, most: usize) -> usize {
    (1 << left.ilog2()).min(most)
}

impl Network {
    /// A session over `rows` sequences of at most `capacity` steps.
    ///
    /// The network's input must have a time axis first, (time, ...): how many steps a call brings is
    /// then up to the caller. Of several inputs each has one; a call brings as many steps of all of them.
    ///
    /// # Errors
    /// [`Error::Value`] for no rows or no capacity; [`Error::Shape`] where the layers do not work on
    /// sequences of any length; [`Error::State`] naming a layer or a link that needs whole ones.
    pub fn session(&mut self, rows: usize, capacity: usize) -> Result<Session> {
        self.build()?;
        self.session_keeping(rows, capacity, CacheType::Full)
    }

    /// [`session`](Self::session) of a network that is built, which keeps keys and values in fewer bits, on processors:
    /// they are rounded once, as they come, so that however its steps come in pieces they make the same bits.
    ///
    /// # Errors
    /// As `session`; [`Error::State`] also before `build`, on a GPU, and where no layer keeps keys and values.
    pub fn session_keeping(&self, rows: usize, capacity: usize, cache: CacheType) -> Result<Session> {
        self.check_built()?;
        self.check_cache(cache)?;
        if rows == 0 || capacity == 0 {
            return Err(Error::Value("a session needs at least one row and one step".into()));
        }
        // Without a time axis there is one output, that of the last step.
        let outputs = self.stepping_outputs()?;
        let widths = StepWidths::of(self);
        let extent = SessionExtent { steps: 1, capacity, cache, ending: Ending::All, ahead: capacity };
        let mode = Mode { session: Some(extent), ..Mode::default() };
        let places = self.carried_places(mode);
        let by_place = places.iter().all(|place| place.spec.by_place);
        let carried = Carried::new(places, rows, self.precision, self.device.accelerator().as_ref())?;
        let device = self.device.clone();
        let epoch = self.registry.epoch();
        let runs = Vec::new();
        Ok(Session {
            rows,
            capacity,
            cache,
            position: 0,
            carried,
            epoch,
            device,
            widths,
            outputs,
            by_place,
            newest: None,
            runs,
        })
    }

    /// The most steps that go through the network at once, with so many rows.
    pub(super) fn most_steps(&self, outputs: &[SteppingOutput], rows: usize, last: bool) -> usize {
        if self.device.accelerator().is_none() {
            return MOST_STEPS;
        }
        let made = outputs.iter().map(|output| output.len(1)).sum::<usize>();
        let fitting = match last || !outputs.iter().any(|output| output.sequence) {
            true => MOST_STEPS_ON_GPUS,
            false => MOST_OUTPUTS / (made * rows).max(1),
        };
        1 << fitting.clamp(MOST_STEPS, MOST_STEPS_ON_GPUS).ilog2()
    }

    /// How many classes there are of which a session chooses its next step, where outputs of steps are `sequences`.
    ///
    /// # Errors
    /// [`Error::State`] for a network that does not read classes such as it makes.
    pub(super) fn classes_chosen(&self, extent: SessionExtent, sequences: bool) -> Result<usize> {
        if !self.outputs.is_empty() {
            return Err(Error::State(
                "a session goes on by itself where there is one output, of which the next step is chosen; this network \
                 has named outputs: call the session, choose, and bring what was chosen"
                    .into(),
            ));
        }
        let flat = self.chooses(Mode { session: Some(extent), ..Mode::default() });
        match (self.index_limit().filter(|_| flat && sequences), &self.output_shape()[..]) {
            (Some(limit), [_, classes]) if *classes <= limit => Ok(*classes),
            _ => Err(Error::State(
                "a session goes on by itself where the network reads whole numbers, one a step, and makes scores of as \
                 many classes for each"
                    .into(),
            )),
        }
    }

    /// Refuses to keep keys and values in fewer bits where there are none, or not on a processor.
    pub(super) fn check_cache(&self, cache: CacheType) -> Result<()> {
        if cache == CacheType::Full {
            return Ok(());
        }
        if self.device.accelerator().is_some() {
            return Err(Error::State(format!(
                "sessions keep keys and values as {cache} on processors alone; on a GPU leave the cache's type out, or \
                 move the network to the CPU"
            )));
        }
        let extent = SessionExtent { steps: 1, capacity: 1, cache, ending: Ending::All, ahead: 0 };
        let specs = self.carried_specs(Mode { session: Some(extent), ..Mode::default() });
        match specs.iter().any(|(_, spec)| spec.packable.is_some()) {
            true => Ok(()),
            false => Err(Error::State(format!(
                "no layer of this network keeps keys and values, so there is nothing to keep as {cache}; leave the \
                 cache's type out"
            ))),
        }
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

    /// Whether there is an output for every step.
    fn sequences(&self) -> bool {
        self.outputs.iter().any(|output| output.sequence)
    }

    /// Extents of what so many steps make of each output; of one that all steps share, without the steps. Several
    /// named ones lie in this order in a row.
    pub fn output_shapes(&self, steps: usize) -> Vec<Shape> {
        self.outputs.iter().map(|output| output.extents(steps)).collect()
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
        self.newest = None;
        self.epoch = network.registry.epoch();
        self.runs.clear();
        Ok(())
    }

    /// Goes back to where only the first `position` steps had been seen.
    ///
    /// # Errors
    /// [`Error::Value`] for more steps than were seen, [`Error::State`] where a layer's state is that of the newest
    /// step alone.
    pub fn rewind(&mut self, position: usize) -> Result<()> {
        if position > self.position {
            return Err(Error::Value(format!(
                "a session that has seen {} steps cannot go back to {position}",
                self.position
            )));
        }
        if position < self.position && !self.by_place {
            return Err(Error::State(
                "a recurrent layer keeps the state of the newest step alone, so the session cannot go back; reset it \
                 and bring the first steps again"
                    .into(),
            ));
        }
        // What lies behind is overwritten before it is looked at.
        self.position = position;
        Ok(())
    }

    /// The output for the next steps: (rows, steps, ...) to (rows, steps, ...). Several named inputs come, and
    /// several named outputs leave, as one row for each sequence: all steps of the first, then those of the next.
    ///
    /// # Errors
    /// [`Error::Shape`] for input that does not fit, [`Error::State`] past the session's capacity or
    /// after the network has changed, [`Error::Value`] and [`Error::NonFinite`] for bad input.
    pub fn advance(&mut self, network: &Network, input: TensorView<'_>) -> Result<Tensor> {
        in_precision!(network.precision, T => self.advance_in::<T>(network, input, false))
    }

    /// The output for the last of the next steps, (rows, 1, ...): what [`advance`](Self::advance) would end with,
    /// without the work that only the outputs of the others take.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn advance_to_last(&mut self, network: &Network, input: TensorView<'_>) -> Result<Tensor> {
        in_precision!(network.precision, T => self.advance_in::<T>(network, input, true))
    }

    /// Brings these steps and goes on by itself: the class of each last output that is the largest, the first of them
    /// where several are, is the next step, or one that is drawn where `draws` says by what. Returns `count` of them for
    /// each row, or fewer where each row has come to one of `stops`, which then is its last or the row's beyond that are
    /// of no use. The last one returned is for the caller to bring.
    ///
    /// # Errors
    /// As [`advance`](Self::advance); [`Error::State`] also for a network that does not read classes such as it makes,
    /// and [`Error::Shape`] for draws that do not fit.
    pub fn follow(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        count: usize,
        stops: &[usize],
        draws: Option<&Draws<'_>>,
    ) -> Result<Vec<Vec<usize>>> {
        if count == 0 {
            return Err(Error::Value("a session goes on by one step at least".into()));
        }
        let classes = network.classes_chosen(self.extent(Part::ONE), self.sequences())?;
        if let Some(draws) = draws {
            draws.check(self.rows, count, classes)?;
        }
        in_precision!(network.precision, T => self.follow_in::<T>(network, input, (count, stops), draws))
    }

    fn check(&self, network: &Network, input: &TensorView<'_>) -> Result<usize> {
        network.check_built()?;
        if self.epoch != network.registry.epoch() || !self.device.is_same(&network.device) {
            return Err(Error::State(
                "the network has changed since the session began; reset the session or begin a new one"
                    .into(),
            ));
        }
        let steps = self.widths.check(network, input)?;
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
        Ok(steps)
    }

    fn advance_in<T: Real>(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        last: bool,
    ) -> Result<Tensor> {
        let steps = self.check(network, &input)?;
        network.passes.note();
        let all = self.elements(&input)?;
        let most = network.most_steps(&self.outputs, self.rows, last);
        let (sequences, known) = (self.sequences(), self.outputs.clone());
        let mut outputs = Outputs::<T>::new(self.rows, steps, (&known, !network.outputs.is_empty()), last);
        while outputs.done() < steps {
            let done = outputs.done();
            let count = part_of(steps - done, most);
            let ending = if last && sequences && count > 1 { Ending::Last } else { Ending::All };
            let run = self.bring::<T>(network, &all, (steps, done), Part { steps: count, ending }, true)?;
            outputs.take(run, count)?;
        }
        outputs.into_tensor()
    }

    fn follow_in<T: Real>(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        (count, stops): (usize, &[usize]),
        draws: Option<&Draws<'_>>,
    ) -> Result<Vec<Vec<usize>>> {
        let steps = self.check(network, &input)?;
        let ahead = count.saturating_sub(1);
        if ahead > self.capacity - self.position - steps {
            return Err(Error::State(format!(
                "{steps} steps after {} and {ahead} of its own are more than the session's capacity of {}; begin one \
                 with a larger capacity",
                self.position, self.capacity
            )));
        }
        network.passes.note();
        let all = self.elements(&input)?;
        let most = network.most_steps(&self.outputs, self.rows, true);
        let pick = if draws.is_some() { Pick::Drawn } else { Pick::Likeliest };
        if let Some(draws) = draws {
            let first = self.position + steps;
            draws.write_settings::<T>(&mut self.carried, self.rows)?;
            draws.write_numbers::<T>(&mut self.carried, self.capacity, (0..count, first))?;
        }
        let mut done = 0;
        // What the session has chosen itself need not be brought again.
        let known = steps == 1 && self.chose(&all);
        while done < steps && !known {
            let part = part_of(steps - done, most);
            let ending = match (done + part == steps, part) {
                (true, _) => Ending::Choice(pick),
                (false, 1) => Ending::All,
                (false, _) => Ending::Last,
            };
            self.bring::<T>(network, &all, (steps, done), Part { steps: part, ending }, false)?;
            done += part;
        }
        // What follows the newest step was chosen, but not brought yet.
        let first = self.position;
        let on_device = network.device.accelerator().is_some();
        let together = match (stops.is_empty(), on_device && self.by_place) {
            (true, _) => count,
            // Choices beyond a stop are forgotten.
            (false, true) => STEPS_OF_A_FRAME,
            (false, false) => 1,
        };
        let (first, mut made) = if known { (first + 1, 0) } else { (first, 1) };
        loop {
            if made < count && (made == 0 || together > 1) {
                made += self.go_on(network, pick, together.min(count - made))?;
            }
            let Some(chosen) = self.chosen::<T>(first..first + made)? else {
                let message = "the scores of a session that goes on by itself hold NaN or infinity";
                return Err(Error::NonFinite(message.into()));
            };
            let end =
                |row: &Vec<usize>| row.iter().position(|step| stops.contains(step)).map(|place| place + 1);
            let stopped = chosen.iter().map(end).collect::<Option<Vec<usize>>>();
            let length = stopped.and_then(|ends| ends.into_iter().max());
            if let Some(length) = length.or((made >= count).then_some(count)) {
                // The last choice is for the caller to bring.
                self.position = self.position.min(first + length.max(1) - 1);
                self.newest = Some((self.position, chosen.iter().map(|row| row[length - 1]).collect()));
                return Ok(chosen.into_iter().map(|row| row[..length].to_vec()).collect());
            }
            if together == 1 {
                made += self.go_on(network, pick, 1)?;
            }
        }
    }

    /// Takes so many steps by itself; returns how many.
    fn go_on(&mut self, network: &Network, pick: Pick, count: usize) -> Result<usize> {
        let values: Vec<StepValues> = (0..count)
            .map(|step| StepValues {
                seed: network.seed,
                position: (self.position + step) as u64,
                ..StepValues::default()
            })
            .collect();
        let part = Part { steps: 1, ending: Ending::Chain(pick) };
        self.run(network, part)?;
        let Some((_, run)) = self.runs.iter_mut().find(|(held, _)| *held == part) else {
            return Err(Error::Internal("a session lost its run".into()));
        };
        run.follow(&network.registry, &mut self.carried, Phase::Forward..=Phase::Forward, &values)?;
        self.position += count;
        Ok(count)
    }

    /// Whether these steps, one of each row, are what was chosen for this place.
    fn chose<T: Real>(&self, steps: &[T]) -> bool {
        self.newest.as_ref().is_some_and(|(place, chosen)| {
            let same = chosen.iter().zip(steps).all(|(chosen, step)| *chosen as f64 == step.to_f64());
            *place == self.position && chosen.len() == steps.len() && same
        })
    }

    /// What was chosen for these places, by row; none where scores were not finite.
    fn chosen<T: Real>(&self, places: std::ops::Range<usize>) -> Result<Option<Vec<Vec<usize>>>> {
        drawing::chosen::<T>(&self.carried, self.capacity, self.rows, places)
    }

    /// The elements of an input.
    fn elements<T: Real>(&self, input: &TensorView<'_>) -> Result<Vec<T>> {
        let mut all = extents::zeros(input.elements().len())?;
        input.copy_to(&mut all);
        Ok(all)
    }

    /// Brings a part of `all` the steps of this call, of which `done` have been brought; returns the run that has its
    /// outputs, of which the last part's are fetched at once with `fetches`.
    fn bring<T: Real>(
        &mut self,
        network: &Network,
        all: &[T],
        (steps, done): (usize, usize),
        part: Part,
        fetches: bool,
    ) -> Result<&mut Run> {
        let (width, widths) = (all.len() / self.rows / steps, self.widths.clone());
        let values =
            StepValues { seed: network.seed, position: self.position as u64, ..StepValues::default() };
        self.run(network, part)?;
        let Some((_, run)) = self.runs.iter_mut().find(|(held, _)| *held == part) else {
            return Err(Error::Internal("a session lost its run".into()));
        };
        if let Some(port) = run.program().ports().input {
            let rows = all.chunks_exact(steps * width);
            for (row, to) in rows.zip(run.write::<T>(port).chunks_exact_mut(part.steps * width)) {
                widths.copy(row, (steps, done), to, part.steps);
            }
        }
        let access = Access::Session(&network.registry, &mut self.carried);
        run.fetches = fetches && done + part.steps == steps;
        let outcome = run.execute(access, Phase::Forward..=Phase::Forward, &values);
        run.fetches = false;
        outcome?;
        self.position += part.steps;
        self.newest = None;
        Ok(run)
    }

    fn extent(&self, Part { steps, ending }: Part) -> SessionExtent {
        SessionExtent { steps, capacity: self.capacity, cache: self.cache, ending, ahead: self.capacity }
    }

    /// The run for so many steps at a time.
    fn run(&mut self, network: &Network, part: Part) -> Result<&mut Run> {
        let place = match self.runs.iter().position(|(held, _)| *held == part) {
            Some(place) => place,
            None => {
                let steps = part.steps;
                let mode = Mode { session: Some(self.extent(part)), ..Mode::default() };
                let key = ProgramKey::forward(mode, self.rows);
                let mut run =
                    network.programs.lease(&key, &network.device, || network.compile_session(&key, steps))?;
                run.rows = self.rows;
                self.runs.push((part, run));
                self.runs.len() - 1
            }
        };
        Ok(&mut self.runs[place].1)
    }
}
