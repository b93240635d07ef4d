//! Threads of one process that share a training, and hand each other memory instead of copies.

use super::Exchange;
use super::contribution::{Joint, Work};
use crate::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where threads of one process meet, each of which trains a network of its own with the others.
#[derive(Debug)]
pub struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// What each has brought, until all have taken theirs.
    brought: Vec<Option<Vec<Arc<Vec<u8>>>>>,
    taken: usize,
    /// What each has brought to be worked on, or why it could not.
    joint: Vec<Place>,
    failed: Option<String>,
}

/// Where one of them leaves something for all to work on.
#[derive(Debug, Default)]
enum Place {
    #[default]
    Empty,
    Brought(Result<Joint, String>),
    /// With how long it took; why nothing was done, if so.
    Done(Result<(Joint, Duration), String>),
}

impl Meeting {
    /// A meeting of so many.
    pub fn new(ranks: usize) -> Self {
        let joint = (0..ranks).map(|_| Place::Empty).collect();
        let state = State { brought: vec![None; ranks], taken: 0, joint, failed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Ends the meeting for all: whoever waits, and whoever comes, is told why.
    pub fn fail(&self, message: &str) {
        self.lock().failed.get_or_insert_with(|| message.into());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, done: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>> {
        let state = self
            .changed
            .wait_while(self.lock(), |state| state.failed.is_none() && !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        match &state.failed {
            Some(message) => Err(Error::State(message.clone())),
            None => Ok(state),
        }
    }

    /// Brings something, and takes of what each has brought the part that `which` says.
    fn exchange(
        &self,
        rank: usize,
        parts: Vec<Vec<u8>>,
        which: usize,
        own: bool,
    ) -> Result<Vec<Arc<Vec<u8>>>> {
        // Those that are late have not taken everything of the time before.
        self.wait_until(|state| state.brought[rank].is_none())?.brought[rank] =
            Some(parts.into_iter().map(Arc::new).collect());
        self.changed.notify_all();
        let mut state = self.wait_until(|state| state.brought.iter().all(Option::is_some))?;
        let take = |parts: &mut Option<Vec<Arc<Vec<u8>>>>| {
            let part = parts.as_mut().and_then(|parts| parts.get_mut(which));
            part.map(|part| if own { std::mem::take(part) } else { part.clone() }).unwrap_or_default()
        };
        let found = state.brought.iter_mut().map(take).collect();
        state.taken += 1;
        if state.taken == state.brought.len() {
            state.taken = 0;
            state.brought.iter_mut().for_each(|parts| *parts = None);
            self.changed.notify_all();
        }
        Ok(found)
    }

    /// Brings something, and has whoever comes last work on what all have brought.
    fn join(&self, rank: usize, brought: Result<Joint>, work: &Work<'_>) -> Result<(Joint, Duration)> {
        let (brought, own) = match brought {
            Ok(joint) => (Ok(joint), None),
            Err(error) => (Err(format!("rank {rank} could not go on: {error}")), Some(error)),
        };
        // One's own place is empty: only who has put something there takes it.
        let mut state = self.wait_until(|_| true)?;
        state.joint[rank] = Place::Brought(brought);
        if state.joint.iter().all(|place| matches!(place, Place::Brought(_))) {
            let taken = state.joint.iter_mut().map(std::mem::take);
            let all = taken.map(|place| match place {
                Place::Brought(brought) => brought,
                Place::Empty | Place::Done(_) => Err("a rank has brought nothing".into()),
            });
            let all: Result<Vec<Joint>, String> = all.collect();
            drop(state);
            let started = Instant::now();
            let done = all.and_then(|all| work(&all).map(|()| all).map_err(|error| error.to_string()));
            let took = started.elapsed();
            state = self.wait_until(|_| true)?;
            match done {
                Ok(all) => {
                    for (place, joint) in state.joint.iter_mut().zip(all) {
                        *place = Place::Done(Ok((joint, took)));
                    }
                }
                Err(why) => {
                    state.joint.iter_mut().for_each(|place| *place = Place::Done(Err(why.clone())));
                }
            }
            self.changed.notify_all();
            drop(state);
        } else {
            drop(state);
        }
        let mut state = self.wait_until(|state| matches!(state.joint[rank], Place::Done(_)))?;
        let done = std::mem::take(&mut state.joint[rank]);
        drop(state);
        match (own, done) {
            (Some(error), _) => Err(error),
            (None, Place::Done(done)) => done.map_err(Error::State),
            (None, Place::Empty | Place::Brought(_)) => Err(Error::State("a rank has lost its place".into())),
        }
    }
}

/// One of those that meet.
#[derive(Clone, Debug)]
pub struct Attendant {
    /// Where.
    pub meeting: Arc<Meeting>,
    /// Its number.
    pub rank: usize,
}

impl Exchange for Attendant {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.meeting.lock().brought.len()
    }

    fn to_each(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let found = self.meeting.exchange(self.rank, parts, self.rank, true)?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    fn to_all(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let found = self.meeting.exchange(self.rank, vec![part], 0, false)?;
        Ok(found.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn join(&mut self, brought: Result<Joint>, work: &Work<'_>) -> Result<(Joint, Duration)> {
        self.meeting.join(self.rank, brought, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_what_the_others_have_brought_round_after_round() {
        let meeting = Arc::new(Meeting::new(3));
        std::thread::scope(|scope| {
            for rank in 0..3u8 {
                let mut own = Attendant { meeting: meeting.clone(), rank: rank.into() };
                scope.spawn(move || {
                    for round in 0..200u8 {
                        let found = own.to_each((0..3).map(|to| vec![round, rank, to]).collect()).unwrap();
                        assert_eq!(found, (0..3).map(|from| vec![round, from, rank]).collect::<Vec<_>>());
                        let found = own.to_all(vec![rank, round]).unwrap();
                        assert_eq!(found, (0..3).map(|from| vec![from, round]).collect::<Vec<_>>());
                    }
                });
            }
        });
    }

    #[test]
    fn who_waits_for_one_that_fails_is_told_why() {
        let meeting = Arc::new(Meeting::new(2));
        let mut own = Attendant { meeting: meeting.clone(), rank: 0 };
        let waits = std::thread::spawn(move || own.to_all(Vec::new()));
        meeting.fail("rank 1 has lost its way");
        let error = waits.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 1 has lost its way"), "{error}");
    }
}
