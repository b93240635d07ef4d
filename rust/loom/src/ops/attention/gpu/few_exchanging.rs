//! The kernel of few queries whose subgroups exchange scores and sums in registers: what a barrier between threads
//! takes, and there would be a dozen, is longer than what a token's attention computes.

use super::Attention;
use super::text::each;
use crate::shader::{Capabilities, Shader};

/// The most threads that score a key together.
pub(super) const TEAM: usize = 4;
/// Units of the query, and of keys under way, that a thread keeps in registers.
const MOST_KEPT: usize = 16;
/// The most keys that a team scores at a time.
const MOST_KEYS: usize = 4;
/// Values that a thread loads together.
const AT_ONCE: usize = 8;

/// How threads share the work out.
#[derive(Clone, Copy)]
pub(super) struct Exchanging {
    subgroup: usize,
    threads: usize,
    span: usize,
    units: usize,
    /// Threads that score a key together.
    team: usize,
}

impl Exchanging {
    /// For workgroups of so many threads with so many keys each, where the device and the heads allow it.
    pub(super) fn new(op: &Attention, device: &Capabilities, threads: usize, span: usize) -> Option<Self> {
        let units = op.vectors().units();
        let team = if units.is_multiple_of(TEAM) { TEAM } else { 1 };
        let shape = Self { subgroup: device.subgroup_threads, threads, span, units, team };
        let whole = shape.subgroup.is_power_of_two()
            && shape.subgroup >= TEAM
            && threads.is_multiple_of(shape.subgroup)
            && threads >= units;
        // Biases and draws are those of the kernel that waits.
        let plain = op.bias.is_none() && op.dropout == 0.0;
        let fits = plain && whole && shape.bytes() <= device.workgroup_storage && units / team <= MOST_KEPT;
        fits.then_some(shape)
    }

    /// Whether threads of one subgroup gather for the same unit.
    fn joins_in_registers(&self) -> bool {
        self.subgroup.is_multiple_of(self.units)
    }

    /// Sums that are left for each unit, and added up in the workgroup's memory.
    fn parts(&self) -> usize {
        if self.joins_in_registers() { self.threads / self.subgroup } else { self.threads / self.units }
    }

    /// Of the workgroup's memory.
    fn bytes(&self) -> usize {
        4 * (self.span + self.threads / self.subgroup + self.parts()) + 16 * self.parts() * self.units
    }

    /// The kernel but for its operands and what it stores.
    pub(super) fn shader(&self, op: &Attention, functions: String) -> Shader {
        let Self { subgroup, threads, span, units, team } = *self;
        let shares = units / team;
        let keys = (MOST_KEPT / shares).clamp(1, MOST_KEYS);
        let join = if self.joins_in_registers() {
            let steps = std::iter::successors(Some(units), |step| Some(2 * step));
            let exchange = |step| {
                format!(
                    "y += subgroupShuffleXor(y, {step}u);\ntotal += subgroupShuffleXor(total, {step}u);\n"
                )
            };
            let text: String = steps.take_while(|step| *step < subgroup).map(exchange).collect();
            text + "if lane < UNITS {\n    gathered[subgroup * UNITS + lane] = y;\n}\n\
                    if lane == 0u {\n    totals[subgroup] = total;\n}"
        } else {
            "if rank < RANKS {\n    gathered[thread] = y;\n    if unit == 0u {\n        totals[rank] = total;\n    }\n}"
                .into()
        };
        op.shader(" exchanging", include_str!("few_exchanging.wgsl"), functions)
            .threads(threads)
            .constant("SUBGROUP", subgroup)
            .constant("SPAN", span)
            .constant("TEAM", team)
            .constant("KEYS", keys)
            .constant("AT_ONCE", AT_ONCE)
            .constant("PARTS", self.parts())
            .section(
                "ASKED",
                each(shares, |s| format!("let asked{s} = load_q(mine, {}u + mate, true) * SCALE;", s * team)),
            )
            .section("SCORE", self.score(shares, keys))
            .section("VALUES", each(AT_ONCE, |i| format!("var v{i} = vec4<f32>();")))
            .section("LOAD", each(AT_ONCE, load))
            .section("GATHER", each(AT_ONCE, gather))
            .section("JOIN", join)
    }

    /// The scores of so many keys of each team: all their loads wait for nothing of each other.
    fn score(&self, shares: usize, keys: usize) -> String {
        let mut text = each(keys, |i| {
            format!(
                "let j{i} = scored + {i}u * TEAMS + thread / TEAM;\n\
                 let key{i} = others + min(j{i}, count - 1u) * KEY_VALUE_HEADS;"
            )
        });
        for i in 0..keys {
            text +=
                &each(shares, |s| format!("let k{i}_{s} = load_k(key{i}, {}u + mate, true);", s * self.team));
        }
        for i in 0..keys {
            let first = format!("k{i}_0 * asked0");
            let products = (1..shares).fold(first, |sum, s| format!("fma(k{i}_{s}, asked{s}, {sum})"));
            text += &format!(
                "let products{i} = {products};\n\
                 var score{i} = products{i}.x + products{i}.y + (products{i}.z + products{i}.w);\n"
            );
            let steps = std::iter::successors(Some(1), |step| Some(2 * step));
            for step in steps.take_while(|step| *step < self.team) {
                text += &format!("score{i} += subgroupShuffleXor(score{i}, {step}u);\n");
            }
            text += &format!(
                "score{i} = select(LEAST, capped(score{i}), j{i} < count && sees(row, place, first + j{i}));\n\
                 if mate == 0u && j{i} < count {{\n    scores[j{i}] = score{i};\n}}\n\
                 largest = max(largest, score{i});\n"
            );
        }
        text
    }
}

/// Loads a value; what is past the last key weighs nothing.
fn load(i: usize) -> String {
    format!("v{i} = load_v(others + min(j + {i}u * RANKS, count - 1u) * KEY_VALUE_HEADS, unit, true);")
}

/// Adds a value by its weight.
fn gather(i: usize) -> String {
    format!(
        "let score{i} = scores[min(j + {i}u * RANKS, count - 1u)];\n\
         let weight{i} = select(exp(score{i} - largest), 0.0, score{i} == LEAST || j + {i}u * RANKS >= count);\n\
         total += weight{i};\n\
         y = fma(vec4<f32>(weight{i}), v{i}, y);"
    )
}
