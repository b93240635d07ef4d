//! Attention on a GPU: as products of tiles; for few queries with the keys shared out; or, for few keys and for wide
//! heads, a thread a query (or a key, for the gradients of keys and values).

mod biases;
mod few_exchanging;
mod few_queries;
mod keep;
mod rows;
mod shares;
mod text;
mod tiled;
mod tiles;
mod units;

use super::spans::Spans;
use super::{Attention, PositionBias};
use crate::ops::Direction;
use crate::shader::{GpuOperation, Operand, Recorder, Shader};
use crate::{Error, Result};
use few_queries::FewQueries;
use shares::Shares;
use text::{Across, Vectors, sight};
use tiles::{Held, Tiles};

impl GpuOperation for Attention {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match self.direction {
            Direction::Forward => self.forward(recorder),
            Direction::InputGradient if !self.cached => self.backward(recorder),
            _ => Err(Error::Internal("attention has no such gradient".into())),
        }
    }
}

impl Attention {
    /// What all kernels but one share: extents, and who sees whom. `functions` load and store vectors.
    fn shader(&self, part: &str, text: &str, functions: String) -> Shader {
        Shader::new(format!("{self}{part}"), text)
            .constant("UNITS", self.vectors().units())
            .constant("HEADS", self.heads)
            .constant("KEY_VALUE_HEADS", self.key_value_heads)
            .constant("HEAD_DIM", self.head_dim)
            .constant("WINDOW", self.window.unwrap_or(0))
            .constant("MASK_WORDS", self.fixed.as_ref().map_or(0, |mask| mask.row_words()))
            .float("SCALE", self.scale)
            .section("VECTORS", functions)
            .section("SIGHT", sight(self))
    }

    fn vectors(&self) -> Vectors {
        Vectors { head_dim: self.head_dim }
    }

    /// The tiles of a kernel for so many vectors of its own side.
    fn tiles(&self, recorder: &Recorder<'_>, vectors: usize, held: Held) -> Option<Tiles> {
        Tiles::new(recorder.capabilities(), vectors, self.vectors().units(), held)
    }

    /// Adds padding, fixed mask and bias, where there are any, and what draws are keyed by; padding and table are the
    /// step's operands from this number on.
    fn masks(&self, mut shader: Shader, recorder: &mut Recorder<'_>, padding: usize) -> Result<Shader> {
        shader = shader.row_places(recorder, self.cached);
        if self.dropout > 0.0 {
            shader = shader.number("path", recorder.path());
        }
        if self.padding {
            shader = shader.read("padding", "f32", recorder.read(padding)?);
        }
        if let Some(mask) = &self.fixed {
            shader = shader.read("allowed", "u32", recorder.table(mask.words())?);
        }
        match &self.bias {
            None => {}
            Some(PositionBias::Slopes(slopes)) => {
                let bits: Vec<u32> = slopes.iter().map(|slope| (*slope as f32).to_bits()).collect();
                shader = shader.read("head_slopes", "f32", recorder.table(&bits)?);
            }
            Some(PositionBias::Buckets(buckets)) => {
                let table = recorder.read(padding + usize::from(self.padding))?;
                shader = shader.read("relative", "f32", table);
                shader = shader.read("buckets", "u32", recorder.table(buckets.rows().0)?);
            }
        }
        Ok(shader)
    }

    /// Runs a kernel for each of `heads` of each row.
    fn run(
        &self,
        recorder: &mut Recorder<'_>,
        Across { shader, groups }: Across,
        heads: usize,
    ) -> Result<()> {
        let all = recorder.rows() * heads * groups;
        shader
            .number("queries", self.queries)
            .number("keys", self.keys)
            // Workgroups that share one head, and all there are.
            .number("tiles", groups)
            .number("groups", all)
            .groups(recorder, all)
    }

    /// Records the forward pass but for the last step, for products of what it gives: reads are the operation's. None,
    /// and nothing recorded, where it is better made whole.
    pub(in crate::ops) fn record_spans(&self, recorder: &mut Recorder<'_>) -> Result<Option<Spans>> {
        let capabilities = recorder.capabilities();
        match FewQueries::new(self, recorder)
            .and_then(|few| few.in_spans(self, recorder.rows(), &capabilities))
        {
            Some(few) => few.record_spans(self, recorder).map(Some),
            None => Ok(None),
        }
    }

    fn forward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        if let Some(few) = FewQueries::new(self, recorder) {
            return few.record(self, recorder);
        }
        let vector = self.vectors().element();
        let on_units = self.suits_units(recorder.capabilities());
        let Across { shader, groups } = match self.tiles(recorder, self.queries, tiles::FORWARD) {
            _ if on_units => self.forward_on_units(),
            Some(tiles) => self.forward_in_tiles(tiles),
            None => self.forward_in_rows(),
        };
        let shader = shader.read("q", vector, recorder.read(0)?).read("k", vector, recorder.read(1)?).read(
            "v",
            vector,
            recorder.read(2)?,
        );
        let shader = self.masks(shader, recorder, 3)?.write("y", vector, recorder.write(0)?).write(
            "logs",
            "f32",
            recorder.write(1)?,
        );
        self.run(recorder, Across { shader, groups }, self.heads)
    }

    fn backward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let vector = self.vectors().element();
        let read: Vec<Operand> = (0..6).map(|i| recorder.read(i)).collect::<Result<_>>()?;
        let [q, k, v, y, logs, dy] = [0, 1, 2, 3, 4, 5].map(|i| read[i].clone());
        let queries = recorder.rows() * self.queries * self.heads;
        let means = recorder.scratch(queries)?;
        Shader::new("attention.means", include_str!("means.wgsl"))
            .threads(rows::THREADS)
            .constant("UNITS", self.vectors().units())
            .section("VECTORS", self.vectors().functions(&["y", "dy"], &[]))
            .read("y", vector, y)
            .read("dy", vector, dy.clone())
            .write("means", "f32", means.clone())
            .number("queries", queries)
            .elements(recorder, queries)?;

        let with_operands = |shader: Shader, recorder: &mut Recorder<'_>| {
            let shader = shader
                .read("q", vector, q.clone())
                .read("k", vector, k.clone())
                .read("v", vector, v.clone())
                .read("dy", vector, dy.clone())
                .read("logs", "f32", logs.clone())
                .read("means", "f32", means.clone());
            self.masks(shader, recorder, 6)
        };
        let on_units = self.suits_units(recorder.capabilities());
        let Across { shader, groups } = match self.tiles(recorder, self.queries, tiles::QUERIES) {
            _ if on_units => self.queries_on_units(),
            Some(tiles) => self.queries_in_tiles(tiles),
            None => self.queries_in_rows(),
        };
        let shader = with_operands(shader, recorder)?.write("dq", vector, recorder.write(0)?);
        self.run(recorder, Across { shader, groups }, self.heads)?;

        let Across { shader, groups } = match self.tiles(recorder, self.keys, tiles::KEYS) {
            _ if on_units => self.keys_on_units(),
            Some(tiles) => self.keys_in_tiles(tiles),
            None => self.keys_in_rows(),
        };
        let shares = Shares::new(self, recorder.rows() * self.key_value_heads * groups);
        let elements = recorder.rows() * self.keys * self.key_value_heads * self.head_dim;
        let gradients = [recorder.write(1)?, recorder.write(2)?];
        let dk = shares.parts(recorder, gradients[0].clone(), elements)?;
        let dv = shares.parts(recorder, gradients[1].clone(), elements)?;
        let shader = shares.declare(with_operands(shader, recorder)?).write("dk", vector, dk.clone()).write(
            "dv",
            vector,
            dv.clone(),
        );
        self.run(recorder, Across { shader, groups }, shares.heads(self))?;
        for (parts, gradient) in [dk, dv].into_iter().zip(gradients) {
            shares.join(recorder, parts, gradient, elements)?;
        }
        if self.table_gradient { self.table_gradient(recorder, with_operands) } else { Ok(()) }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::tests::{Case, any, any_bias, gradient};
    use super::super::{CacheAppend, FixedMask};
    use super::*;
    use crate::gpu::testing::{
        check, compare, gpu, in_part, run, run_with, run_with_workgroups_of, to_float16,
    };
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::ops::{Op, RowPlace};
    use crate::shader::Capabilities;
    use crate::shader::testing::is_valid;
    use crate::simd::Cpu;
    use few_exchanging::Exchanging;
    use few_queries::STORE;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn both(op: &Attention, rows: usize) {
        let case = Case::<f32>::new(op, rows);
        let forward = case.forward(op);
        check(op.clone(), &forward);
        let found = forward.run_on(op, Cpu::global().unwrap()).unwrap();
        check(gradient(op), &case.backward(op, found[0].real(), found[1].real()));
    }

    #[test]
    fn extents_of_every_kind() {
        both(&Attention::new((1, 1), (1, 1), 1), 1);
        both(&Attention { causal: true, ..Attention::new((130, 130), (2, 1), 8) }, 2);
        both(&Attention { causal: true, window: Some(70), ..Attention::new((200, 200), (1, 1), 4) }, 1);
        both(&Attention::new((3, 90), (1, 1), 128), 1);
        // Four heads of queries to a head of keys, two to a workgroup.
        both(&Attention { causal: true, ..Attention::new((3, 3), (8, 2), 4) }, 300);
        both(&Attention { causal: true, ..Attention::new((17, 17), (8, 2), 4) }, 150);
    }

    /// Keys of one workgroup and of several, all of a query's hidden, and caches that are filled in part.
    #[test]
    fn few_queries_share_their_keys_out() {
        for (queries, keys, heads, head_dim) in
            [(1, 32, (3, 1), 64), (5, 700, (2, 2), 20), (1, 2500, (4, 2), 7), (2, 3000, (1, 1), 256)]
        {
            let op = Attention::new((queries, keys), heads, head_dim);
            both(&op, 2);
            both(&Attention { causal: true, window: Some(3), soft_cap: Some(2.0), ..op.clone() }, 1);
            let fixed = Arc::new(FixedMask::new(queries, keys, |i, j| i > 0 && j % 3 > 0));
            both(&Attention { fixed: Some(fixed), ..op.clone() }, 1);
            let cached = Attention { causal: true, cached: true, ..op.clone() };
            for (window, bias) in [(None, 2), (Some(40), 2), (None, 0), (Some(600), 1)] {
                let bias = any_bias(bias, keys, heads.0);
                let cached = Attention { window, bias, ..cached.clone() };
                for position in [0, keys / 2, keys - queries] {
                    let mut setting = Case::<f32>::new(&cached, 2).forward(&cached);
                    setting.values.position = position as u64;
                    check(cached.clone(), &setting);
                }
            }
        }
    }

    /// Rows of other sequences than their own number says, each from its own place: by every kernel there is for
    /// caches, one of them for nobody, which stands behind all keys.
    #[test]
    fn rows_look_at_the_sequence_that_they_are_of() {
        for (queries, keys, heads, head_dim) in [
            (1, 700, (4, 2), 64),
            (1, 2500, (2, 1), 7),
            (40, 90, (2, 1), 16),
            (20, 70, (1, 1), 300),
            (3, 20, (2, 2), 8),
        ] {
            let op =
                Attention { causal: true, cached: true, ..Attention::new((queries, keys), heads, head_dim) };
            for op in [op.clone(), Attention { window: Some(15), bias: any_bias(1, keys, heads.0), ..op }] {
                // Four sequences, three of which are looked at.
                let case = Case::<f32>::new(&op, 4);
                let mut setting = case.forward(&op);
                setting.rows = 3;
                let Data::Real(asked) = &mut setting.reads[0] else { unreachable!() };
                asked.truncate(3 * queries * heads.0 * head_dim);
                let lengths = [3 * queries * heads.0 * head_dim, 3 * queries * heads.0];
                setting.writes = lengths.map(|length| Data::Real(vec![0.0; length])).to_vec();
                let places = [(3, keys - queries), (0, 0), (2, keys / 2 - queries / 2)];
                setting.values.places =
                    places.map(|(sequence, position)| RowPlace { sequence, position }).to_vec();
                check(op.clone(), &setting);
                setting.values.places[1] = RowPlace { sequence: 0, position: keys };
                let Some(gpu) = gpu() else { return };
                let found = run(&gpu, &op.clone().into(), &setting, None).unwrap();
                let row = queries * heads.0 * head_dim;
                assert!(found[0].real()[row..2 * row].iter().all(|y| *y == 0.0), "{op}");
            }
        }
    }

    /// Steps are kept with the sequence that they are of, and what has no room nowhere.
    #[test]
    fn rows_are_kept_with_their_sequence() {
        let (capacity, width, time) = (10, 6, 2);
        let mut setting = Setting::<f32>::new(3, &[&numbers(1, 3 * time * width)], &[4 * capacity * width]);
        let places = [(2, 3), (0, 9), (1, 10)];
        setting.values.places = places.map(|(sequence, position)| RowPlace { sequence, position }).to_vec();
        setting.values.position = 0;
        check(CacheAppend::new(time, capacity, width), &setting);
        // Positions count on from there.
        setting.values.position = 1;
        check(CacheAppend::new(time, capacity, width), &setting);
    }

    /// Devices whose subgroups exchange nothing, and heads that their threads share out in every way.
    #[test]
    fn few_queries_with_and_without_exchange() {
        let Some(gpu) = gpu() else { return };
        for (keys, heads, head_dim) in
            [(33, (2, 1), 4), (700, (6, 2), 64), (300, (1, 1), 12), (1100, (2, 2), 31), (90, (1, 1), 300)]
        {
            let op = Attention {
                causal: true,
                cached: true,
                window: Some(keys - 7),
                ..Attention::new((3, keys), heads, head_dim)
            };
            let mut setting = Case::<f32>::new(&op, 2).forward(&op);
            setting.values.position = keys as u64 - 4;
            let expected = setting.run(&op);
            let op = Op::from(op);
            for threads in [gpu.capabilities().subgroup_threads, 0] {
                let found =
                    run_with(&gpu, &op, &setting, None, |recorder| recorder.subgroup_threads = threads);
                compare(&op, &expected, &found.unwrap());
            }
        }
    }

    /// Software adapters have small subgroups: naga sees the text for those of real devices.
    #[test]
    fn texts_for_every_subgroup_are_valid() {
        for subgroup in [4, 16, 32, 64] {
            for head_dim in [4, 20, 64, 128, 256] {
                let Some(gpu) = gpu() else { return };
                let op =
                    Attention { causal: true, cached: true, ..Attention::new((1, 640), (2, 1), head_dim) };
                let device = Capabilities { subgroup_threads: subgroup, ..gpu.capabilities() };
                let exchanging = Exchanging::new(&op, &device, 512, 640).expect("a kernel");
                let vectors = op.vectors();
                let functions = vectors.functions(&["q", "k", "v"], &["y"]);
                let mut shader = exchanging.shader(&op, functions).section("STORE", STORE).placed(None, true);
                for name in ["q", "k", "v"] {
                    shader = shader.read(name, vectors.element(), Operand::unbound());
                }
                for number in ["queries", "keys", "spans", "groups"] {
                    shader = shader.number(number, 1u32);
                }
                let shader = shader.write("y", vectors.element(), Operand::unbound());
                is_valid(shader.write("logs", "f32", Operand::unbound()));
            }
        }
    }

    /// Tiles of every size, by how much memory they may take, and heads that fill them in part.
    #[test]
    fn tiles_of_every_size() {
        let Some(gpu) = gpu() else { return };
        let op = |queries, keys, heads, head_dim| Attention {
            causal: queries == keys,
            ..Attention::new((queries, keys), heads, head_dim)
        };
        let cases =
            [op(70, 70, (4, 2), 20), op(33, 90, (1, 1), 64), op(16, 17, (2, 1), 7), op(50, 50, (1, 1), 96)];
        for op in cases {
            let case = Case::<f32>::new(&op, 2);
            let forward = case.forward(&op);
            let found = forward.run(&op);
            let backward = case.backward(&op, found[0].real(), found[1].real());
            for (op, setting) in [(op.clone(), &forward), (gradient(&op), &backward)] {
                let expected = setting.run(&op);
                let op = op.into();
                for bytes in [1 << 10, 1 << 13, 1 << 14, 3 << 13, 1 << 15] {
                    let found = run_with_workgroups_of(&gpu, &op, setting, bytes).unwrap();
                    compare(&op, &expected, &found);
                }
            }
        }
    }

    /// In rows, in tiles, and with keys shared out.
    #[test]
    fn what_is_left_out_is_the_same() {
        let op = Attention { dropout: 0.4, causal: true, ..Attention::new((70, 70), (4, 2), 20) };
        both(&op, 2);
        both(&Attention { dropout: 1.0 - 1e-12, ..op }, 1);
        both(&Attention { dropout: 0.5, ..Attention::new((3, 700), (2, 2), 8) }, 2);
        both(&Attention { dropout: 0.2, ..Attention::new((9, 5), (300, 300), 3) }, 1);
    }

    #[test]
    fn biases_by_distance() {
        for number in 0..2 {
            for (time, heads, head_dim) in
                [(70, (4, 2), 20), (3, (1, 1), 128), (200, (2, 2), 4), (9, (300, 300), 3)]
            {
                let bias = any_bias(number, time, heads.0);
                let op = Attention { bias, ..Attention::new((time, time), heads, head_dim) };
                let ops = [
                    (op.clone(), 2),
                    (Attention { causal: true, dropout: 0.5, soft_cap: Some(2.0), ..op.clone() }, 1),
                    (Attention { causal: true, window: Some(5), padding: true, ..op }, 2),
                ];
                for (turn, (op, rows)) in ops.into_iter().enumerate() {
                    if in_part(turn + time + number as usize, 3) {
                        both(&op, rows);
                    }
                }
            }
        }
    }

    /// On matrix units, where there are such: of everything that says who sees whom, and of tiles that are filled in part.
    #[test]
    fn rounded_operands_come_close() {
        let Some(gpu) = gpu() else { return };
        let causal = |op: Attention| Attention { causal: true, ..op };
        let fixed = Arc::new(FixedMask::new(48, 48, |i, j| i > 2 && (i + j) % 3 > 0));
        let cases = [
            causal(Attention::new((80, 80), (4, 2), 64)),
            Attention::new((64, 112), (2, 2), 32),
            Attention { window: Some(20), ..causal(Attention::new((144, 144), (3, 1), 16)) },
            Attention { window: Some(40), ..Attention::new((96, 96), (1, 1), 128) },
            Attention { fixed: Some(fixed), soft_cap: Some(2.0), ..Attention::new((48, 48), (2, 1), 48) },
        ];
        let small = cases.map(|op| (op, 2, 1.0));
        // Late keys with much larger scores than the first ones: their weights are relative to the largest of all in
        // the end.
        let wide = causal(Attention::new((160, 160), (8, 2), 64));
        let late = [
            (causal(Attention::new((96, 96), (2, 1), 32)), 2, 24.0),
            (wide.clone(), 8, 1.0),
            (wide, 8, 24.0),
        ];
        let late = late.into_iter().filter(|_| gpu.capabilities().has_matrix_units());
        for (op, rows, factor) in small.into_iter().chain(late) {
            let op = Attention { mixed: true, ..op };
            let mut case = Case::<f32>::new(&op, rows);
            let late = op.keys / 2 * op.key_value_heads * op.head_dim;
            for row in case.k.chunks_exact_mut(2 * late) {
                row[late..].iter_mut().for_each(|k| *k *= factor);
            }
            if factor > 1.0 {
                // Otherwise such scores would differ by more than what is looked for.
                case.q.iter_mut().chain(&mut case.k).for_each(|x| *x = to_float16(*x));
            }
            let forward = case.forward(&op);
            let cpu = Cpu::global().unwrap();
            let found = forward.run_on(&op, cpu).unwrap();
            let backward = case.backward(&op, found[0].real(), found[1].real());
            for (op, setting) in [(op.clone(), &forward), (gradient(&op), &backward)] {
                let expected = setting.run_on(&op, cpu).unwrap();
                let found = run(&gpu, &op.clone().into(), setting, None).unwrap();
                for (expected, found) in expected.iter().zip(&found) {
                    let (expected, found) = (expected.real(), found.real());
                    // A logarithm of no sum is as large as can be on both.
                    let pairs = expected.iter().zip(found).filter(|(one, _)| one.abs() < 1e30);
                    let largest = pairs.clone().map(|(one, _)| one.abs()).fold(1e-3, f32::max);
                    let worst = pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
                    assert!(worst < 3e-3 * largest, "{op}: {worst} of {largest}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]

        #[test]
        fn any_attention_is_as_on_the_cpu(op in any(), rows in 1..3usize) {
            // The logarithm of a sum over no key is infinite on both.
            both(&op, rows);
        }
    }

    #[test]
    fn caches_are_filled_and_looked_at() {
        let (capacity, width) = (150, 12);
        let mut setting = Setting::<f32>::new(2, &[&numbers(1, 2 * 3 * width)], &[2 * capacity * width]);
        setting.values.position = 80;
        check(CacheAppend::new(3, capacity, width), &setting);
        let caches: [Vec<f32>; 2] = [numbers(2, 2 * capacity * width), numbers(3, 2 * capacity * width)];
        setting.reads.extend(caches.map(Data::Real));
        setting.writes = vec![Data::Real(vec![0.0; 2 * 3 * width]), Data::Real(vec![0.0; 2 * 3 * 3])];
        let op = Attention { causal: true, cached: true, ..Attention::new((3, capacity), (3, 3), 4) };
        check(op, &setting);
    }
}
