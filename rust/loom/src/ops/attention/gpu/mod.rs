//! Attention on a GPU: a thread a query (or a key, for the gradients of keys and values), its vectors
//! in registers, the other side's in the workgroup's memory a few at a time.

mod text;

use super::{Attention, CacheAppend};
use crate::ops::Direction;
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Template};
use crate::{Error, Result};
use text::{Binding, Vectors, declarations, each, sight};

/// Threads of a workgroup: queries, or keys, that are taken together.
const THREADS: usize = 64;
/// Bytes of a workgroup's memory that every device has and this takes at most.
const SHARED: usize = 15 * 1024;
/// The most vectors of the other side that lie in the workgroup's memory at a time.
const TILE: usize = 32;

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
    /// The template with what all kernels share.
    fn template(&self, text: &str, bindings: &[Binding], vectors: Vectors) -> Template {
        // Two vectors lie in the workgroup's memory for each of the other side.
        let tile = (SHARED / (vectors.units() * 32)).clamp(1, TILE);
        Template::new(text)
            .constant("THREADS", THREADS)
            .constant("UNITS", vectors.units())
            .constant("TILE", tile)
            .constant("HEADS", self.heads)
            .constant("KEY_VALUE_HEADS", self.key_value_heads)
            .constant("HEAD_DIM", self.head_dim)
            .constant("WINDOW", self.window.unwrap_or(0))
            .constant("MASK_WORDS", self.fixed.as_ref().map_or(0, |mask| mask.row_words()))
            .float("SCALE", self.scale)
            .section("BINDINGS", declarations(bindings, vectors))
            .section("SIGHT", sight(self))
    }

    /// Padding and fixed mask, where there are any: what they are called and hold, and where they are.
    fn masks(&self, recorder: &mut Recorder<'_>, padding: usize) -> Result<(Vec<Binding>, Vec<Bind>)> {
        let (mut bindings, mut operands) = (Vec::new(), Vec::new());
        if self.padding {
            bindings.push(("padding", "f32"));
            operands.push(Bind::Read(recorder.read(padding)?));
        }
        if let Some(mask) = &self.fixed {
            bindings.push(("allowed", "u32"));
            operands.push(Bind::Read(recorder.table(mask.words())?));
        }
        Ok((bindings, operands))
    }

    /// Extents as constants, and how many workgroups take `across` threads of each of `heads` in each row.
    fn groups(&self, recorder: &Recorder<'_>, heads: usize, across: usize) -> ([u32; 4], usize) {
        let tiles = across.div_ceil(THREADS);
        let groups = recorder.rows() * heads * tiles;
        ([self.queries as u32, self.keys as u32, tiles as u32, groups as u32], groups)
    }

    fn forward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let vectors = Vectors { head_dim: self.head_dim };
        let (masks, mask_operands) = self.masks(recorder, 3)?;
        let mut bindings = vec![("q", "vector"), ("k", "vector"), ("v", "vector")];
        let mut operands: Vec<Bind> =
            (0..3).map(|i| recorder.read(i).map(Bind::Read)).collect::<Result<_>>()?;
        bindings.extend(masks);
        operands.extend(mask_operands);
        bindings.extend([("y", "vector write"), ("logs", "f32 write")]);
        operands.extend([Bind::Write(recorder.write(0)?), Bind::Write(recorder.write(1)?)]);
        let n = vectors.units();
        let kernel = self
            .template(include_str!("forward.wgsl"), &bindings, vectors)
            .section("LOAD", each(n, |u| format!("let q{u} = load_q(mine, {u}u, present) * SCALE;")))
            .section("ZERO", each(n, |u| format!("var y{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| format!("products = fma(q{u}, keys[j * UNITS + {u}u], products);")))
            .section("FADE", each(n, |u| format!("y{u} *= fade;")))
            .section(
                "GATHER",
                each(n, |u| format!("y{u} = fma(vec4<f32>(weight), values[j * UNITS + {u}u], y{u});")),
            )
            .section("STORE", each(n, |u| format!("store_y(mine, {u}u, y{u} * share);")))
            .kernel(self.to_string());
        let (constants, groups) = self.groups(recorder, self.heads, self.queries);
        recorder.dispatch(&kernel, &operands, &constants, groups)
    }

    fn backward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let vectors = Vectors { head_dim: self.head_dim };
        let n = vectors.units();
        let (masks, mask_operands) = self.masks(recorder, 6)?;
        let read: Vec<Operand> = (0..6).map(|i| recorder.read(i)).collect::<Result<_>>()?;
        let [dq, dk, dv] = [recorder.write(0)?, recorder.write(1)?, recorder.write(2)?];
        let queries = recorder.rows() * self.queries * self.heads;
        let means = recorder.scratch(queries)?;

        let bindings = [("y", "vector"), ("dy", "vector"), ("means", "f32 write")];
        let kernel = Template::new(include_str!("means.wgsl"))
            .constant("THREADS", THREADS)
            .constant("UNITS", n)
            .constant("HEAD_DIM", self.head_dim)
            .section("BINDINGS", declarations(&bindings, vectors))
            .kernel("attention.means");
        let operands = [Bind::Read(read[3].clone()), Bind::Read(read[5].clone()), Bind::Write(means.clone())];
        recorder.dispatch(&kernel, &operands, &[queries as u32], queries.div_ceil(THREADS))?;

        let mut shared = vec![("q", "vector"), ("k", "vector"), ("v", "vector"), ("dy", "vector")];
        shared.extend([("logs", "f32"), ("means", "f32")]);
        shared.extend(masks);
        let mut operands: Vec<Bind> = [0, 1, 2, 5, 4].map(|i| Bind::Read(read[i].clone())).into();
        operands.push(Bind::Read(means));
        operands.extend(mask_operands);

        let bindings = [&shared[..], &[("dq", "vector write")]].concat();
        let kernel = self
            .template(include_str!("queries.wgsl"), &bindings, vectors)
            .section("LOAD", each(n, |u| {
                format!("let q{u} = load_q(mine, {u}u, present) * SCALE;\nlet dy{u} = load_dy(mine, {u}u, present);")
            }))
            .section("ZERO", each(n, |u| format!("var dq{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| {
                format!("products = fma(q{u}, keys[j * UNITS + {u}u], products);\nslopes = fma(dy{u}, values[j * UNITS + {u}u], slopes);")
            }))
            .section("GATHER", each(n, |u| format!("dq{u} = fma(vec4<f32>(slope), keys[j * UNITS + {u}u], dq{u});")))
            .section("STORE", each(n, |u| format!("store_dq(mine, {u}u, dq{u} * SCALE);")))
            .kernel(format!("{self} queries"));
        let with = |results: &[&Operand]| -> Vec<Bind> {
            operands
                .iter()
                .cloned()
                .chain(results.iter().map(|result| Bind::Write((*result).clone())))
                .collect()
        };
        let (constants, groups) = self.groups(recorder, self.heads, self.queries);
        recorder.dispatch(&kernel, &with(&[&dq]), &constants, groups)?;

        let bindings = [&shared[..], &[("dk", "vector write"), ("dv", "vector write")]].concat();
        let kernel = self
            .template(include_str!("keys.wgsl"), &bindings, vectors)
            .section("LOAD", each(n, |u| {
                format!("let k{u} = load_k(mine, {u}u, present);\nlet v{u} = load_v(mine, {u}u, present);")
            }))
            .section("ZERO", each(n, |u| format!("var dk{u} = vec4<f32>();\nvar dv{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| {
                format!("products = fma(k{u}, asked[j * UNITS + {u}u], products);\nslopes = fma(v{u}, given[j * UNITS + {u}u], slopes);")
            }))
            .section("GATHER", each(n, |u| {
                format!(
                    "dv{u} = fma(vec4<f32>(weight), given[j * UNITS + {u}u], dv{u});\n\
                     dk{u} = fma(vec4<f32>(slope), asked[j * UNITS + {u}u], dk{u});"
                )
            }))
            .section("STORE", each(n, |u| format!("store_dk(mine, {u}u, dk{u});\nstore_dv(mine, {u}u, dv{u});")))
            .kernel(format!("{self} keys"));
        let (constants, groups) = self.groups(recorder, self.key_value_heads, self.keys);
        recorder.dispatch(&kernel, &with(&[&dk, &dv]), &constants, groups)
    }
}

impl GpuOperation for CacheAppend {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, cache) = (recorder.read(0)?, recorder.write(0)?);
        let kernel =
            Template::new(include_str!("cache.wgsl")).constant("THREADS", 256).kernel("cache_append");
        let elements = x.elements;
        let constants = [self.time, self.capacity, self.features, elements].map(|extent| extent as u32);
        recorder.dispatch(&kernel, &[Bind::Read(x), Bind::Write(cache)], &constants, elements.div_ceil(256))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::tests::{Case, any, gradient};
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;
    use proptest::prelude::*;

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
        check(CacheAppend { time: 3, capacity, features: width }, &setting);
        let caches: [Vec<f32>; 2] = [numbers(2, 2 * capacity * width), numbers(3, 2 * capacity * width)];
        setting.reads.extend(caches.map(Data::Real));
        setting.writes = vec![Data::Real(vec![0.0; 2 * 3 * width]), Data::Real(vec![0.0; 2 * 3 * 3])];
        let op = Attention { causal: true, cached: true, ..Attention::new((3, capacity), (3, 3), 4) };
        check(op, &setting);
    }
}
