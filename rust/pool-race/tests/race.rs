//! Eight threads run tasks on pools that they share, start and drop pools of their own, and panic in tasks.
//! `LOOM_RACE_SECONDS` has them do so for longer.

use pool_race::simd::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Numbers that follow from a seed (xorshift).
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }
}

/// Writes where each element is.
fn number(pool: &Pool, elements: usize, chunk: usize) {
    let mut places = vec![0; elements];
    pool.for_each_chunk(&mut places, chunk, |index, piece| {
        for (place, element) in piece.iter_mut().enumerate() {
            *element = index * chunk + place;
        }
    });
    assert!(places.into_iter().eq(0..elements));
}

fn run(pools: &[Pool], choices: &mut Choices) {
    let pool = &pools[choices.below(pools.len())];
    let (elements, chunk) = (choices.below(300) + 1, choices.below(17) + 1);
    match choices.below(5) {
        0 => {
            let last = elements - 1;
            let panics = |task| {
                if task == last {
                    resume_unwind(Box::new(task));
                }
            };
            let caught = catch_unwind(AssertUnwindSafe(|| pool.run(elements, &panics)));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&last));
        }
        1 => number(&Pool::new(choices.below(4) + 1).unwrap(), elements, chunk),
        2 => pool.run(3, &|task| number(pool, elements + task, chunk)),
        _ => number(pool, elements, chunk),
    }
}

#[test]
fn eight_threads_race_through_pools() {
    let seconds =
        std::env::var("LOOM_RACE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(2.0);
    let pools = [2, 4, 8].map(|threads| Pool::new(threads).unwrap());
    let over = AtomicBool::new(false);
    let runs: u64 = std::thread::scope(|scope| {
        let (pools, over) = (&pools, &over);
        let race = |seed| {
            move || {
                let (mut choices, mut runs) = (Choices(seed), 0);
                while !over.load(Ordering::Relaxed) {
                    run(pools, &mut choices);
                    runs += 1;
                }
                runs
            }
        };
        let threads: Vec<_> = (1..=8).map(|seed| scope.spawn(race(seed))).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{runs} runs");
    assert!(runs > 8);
}
