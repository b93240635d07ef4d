//! Attention on a GPU: as products of tiles, or, for few queries and for wide heads, a thread a query (or a key, for
//! the gradients of keys and values), its vectors in registers, the other side's in the workgroup's memory a few
//! at a time.

mod text;
mod tiles;

use super::{Attention, CacheAppend};
use crate::ops::Direction;
use crate::shader::{GpuOperation, Operand, Recorder, Shader};
use crate::{Error, Result};
use text::{Vectors, each, sight};
use tiles::{Tiles, four};

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
    /// What all kernels but one share: extents, the functions that load and store the vectors of these arrays,
    /// and who sees whom.
    fn shader(&self, label: String, text: &str, functions: String) -> Shader {
        let units = self.vectors().units();
        // Two vectors lie in the workgroup's memory for each of the other side.
        let tile = (SHARED / (units * 32)).clamp(1, TILE);
        self.declared(Shader::new(label, text), functions).threads(THREADS).constant("TILE", tile)
    }

    /// The same with tiles of these extents.
    fn tiled(&self, label: &str, text: &str, functions: String, tiles: Tiles) -> Shader {
        tiles.declare(self.declared(Shader::new(format!("{self}{label}"), text), functions))
    }

    fn declared(&self, shader: Shader, functions: String) -> Shader {
        shader
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

    /// Adds padding and fixed mask, where there are any; the step's operand of this number is the padding.
    fn masks(&self, mut shader: Shader, recorder: &mut Recorder<'_>, padding: usize) -> Result<Shader> {
        if self.padding {
            shader = shader.read("padding", "f32", recorder.read(padding)?);
        }
        if let Some(mask) = &self.fixed {
            shader = shader.read("allowed", "u32", recorder.table(mask.words())?);
        }
        Ok(shader)
    }

    /// Runs it with a thread for each of `across` in each of `heads` of each row.
    fn run(&self, shader: Shader, recorder: &mut Recorder<'_>, heads: usize, across: usize) -> Result<()> {
        self.run_in_tiles(shader, recorder, heads, across.div_ceil(THREADS))
    }

    /// Runs it with so many workgroups for each of `heads` of each row.
    fn run_in_tiles(
        &self,
        shader: Shader,
        recorder: &mut Recorder<'_>,
        heads: usize,
        tiles: usize,
    ) -> Result<()> {
        let groups = recorder.rows() * heads * tiles;
        shader
            .number("queries", self.queries)
            .number("keys", self.keys)
            // Workgroups that share one head, and all there are.
            .number("tiles", tiles)
            .number("groups", groups)
            .groups(recorder, groups)
    }

    /// The tiles of a kernel for so many vectors of its own side.
    fn tiles(&self, recorder: &Recorder<'_>, vectors: usize, held: tiles::Held) -> Option<Tiles> {
        Tiles::new(recorder.capabilities(), vectors, self.vectors().units(), held)
    }

    fn forward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (n, vector) = (self.vectors().units(), self.vectors().element());
        let functions = self.vectors().functions(&["q", "k", "v"], &["y"]);
        let with_operands = |shader: Shader, recorder: &mut Recorder<'_>| {
            let shader = shader
                .read("q", vector, recorder.read(0)?)
                .read("k", vector, recorder.read(1)?)
                .read("v", vector, recorder.read(2)?);
            let shader = self.masks(shader, recorder, 3)?;
            Ok(shader.write("y", vector, recorder.write(0)?).write("logs", "f32", recorder.write(1)?))
        };
        if let Some(tiles) = self.tiles(recorder, self.queries, tiles::FORWARD) {
            let seen = |j: usize| {
                four(|i| {
                    let key = format!("base + column + {j}u * COLUMNS");
                    format!("seen(row, tile + quad * 4u + {i}u, {key}, score_{i}_{j})")
                })
            };
            let place = "(row * constants.queries + own) * HEADS + head";
            let shader = self
                .tiled("", include_str!("tiles_forward.wgsl"), functions, tiles)
                .section("ZERO", tiles.zero(&["y"]))
                .section("SCORES", tiles.scores(&[["score", "asked", "keys"]]))
                .section("SEEN0", seen(0))
                .section("SEEN1", seen(1))
                .section("FADE", tiles.fade("y"))
                .section("GATHER", tiles.gather(&[["y", "weights", "values"]]))
                .section(
                    "STORE",
                    tiles.store(&["y"], "constants.queries", place, |n, i| format!(" * fades[quad{n}][{i}]")),
                );
            let shader = with_operands(shader, recorder)?;
            return self.run_in_tiles(shader, recorder, self.heads, self.queries.div_ceil(tiles.own));
        }
        let shader = self
            .shader(self.to_string(), include_str!("forward.wgsl"), functions)
            .section("LOAD", each(n, |u| format!("let q{u} = load_q(mine, {u}u, present) * SCALE;")))
            .section("ZERO", each(n, |u| format!("var y{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| format!("products = fma(q{u}, keys[j * UNITS + {u}u], products);")))
            .section("FADE", each(n, |u| format!("y{u} *= fade;")))
            .section(
                "GATHER",
                each(n, |u| format!("y{u} = fma(vec4<f32>(weight), values[j * UNITS + {u}u], y{u});")),
            )
            .section("STORE", each(n, |u| format!("store_y(mine, {u}u, y{u} * share);")));
        let shader = with_operands(shader, recorder)?;
        self.run(shader, recorder, self.heads, self.queries)
    }

    fn backward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (n, vector) = (self.vectors().units(), self.vectors().element());
        let read: Vec<Operand> = (0..6).map(|i| recorder.read(i)).collect::<Result<_>>()?;
        let [q, k, v, y, logs, dy] = [0, 1, 2, 3, 4, 5].map(|i| read[i].clone());
        let queries = recorder.rows() * self.queries * self.heads;
        let means = recorder.scratch(queries)?;

        Shader::new("attention.means", include_str!("means.wgsl"))
            .threads(THREADS)
            .constant("UNITS", n)
            .section("VECTORS", self.vectors().functions(&["y", "dy"], &[]))
            .read("y", vector, y)
            .read("dy", vector, dy.clone())
            .write("means", "f32", means.clone())
            .number("queries", queries)
            .elements(recorder, queries)?;

        let with_operands = |shader: Shader| {
            shader
                .read("q", vector, q.clone())
                .read("k", vector, k.clone())
                .read("v", vector, v.clone())
                .read("dy", vector, dy.clone())
                .read("logs", "f32", logs.clone())
                .read("means", "f32", means.clone())
        };
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dq"]);
        let products = |own: [&'static str; 2], other: [&'static str; 2]| {
            [["score", own[0], other[0]], ["gradient", own[1], other[1]]]
        };
        let tiles = self.tiles(recorder, self.queries, tiles::QUERIES);
        if let Some(tiles) = tiles {
            let slope = |j: usize| {
                four(|i| {
                    format!(
                        "slope(row, tile + quad * 4u + {i}u, base + column + {j}u * COLUMNS, score_{i}_{j}, \
                         gradient_{i}_{j}, sum_logs[{i}], mean_slopes[{i}])"
                    )
                })
            };
            let place = "(row * constants.queries + own) * HEADS + head";
            let shader = self
                .tiled(" queries", include_str!("tiles_queries.wgsl"), functions.clone(), tiles)
                .section("ZERO", tiles.zero(&["dq"]))
                .section("SCORES", tiles.scores(&products(["asked", "given"], ["keys", "values"])))
                .section("SLOPE0", slope(0))
                .section("SLOPE1", slope(1))
                .section("GATHER", tiles.gather(&[["dq", "slopes", "keys"]]))
                .section("STORE", tiles.store(&["dq"], "constants.queries", place, |_, _| " * SCALE".into()));
            let shader =
                self.masks(with_operands(shader), recorder, 6)?.write("dq", vector, recorder.write(0)?);
            self.run_in_tiles(shader, recorder, self.heads, self.queries.div_ceil(tiles.own))?;
        } else {
            let shader = self
            .shader(format!("{self} queries"), include_str!("queries.wgsl"), functions)
            .section("LOAD", each(n, |u| {
                format!("let q{u} = load_q(mine, {u}u, present) * SCALE;\nlet dy{u} = load_dy(mine, {u}u, present);")
            }))
            .section("ZERO", each(n, |u| format!("var dq{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| {
                format!("products = fma(q{u}, keys[j * UNITS + {u}u], products);\nslopes = fma(dy{u}, values[j * UNITS + {u}u], slopes);")
            }))
            .section("GATHER", each(n, |u| format!("dq{u} = fma(vec4<f32>(slope), keys[j * UNITS + {u}u], dq{u});")))
            .section("STORE", each(n, |u| format!("store_dq(mine, {u}u, dq{u} * SCALE);")));
            let shader =
                self.masks(with_operands(shader), recorder, 6)?.write("dq", vector, recorder.write(0)?);
            self.run(shader, recorder, self.heads, self.queries)?;
        }

        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dk", "dv"]);
        if let Some(tiles) = self.tiles(recorder, self.keys, tiles::KEYS) {
            let weighed: String = (0..2)
                .map(|j| {
                    let pair = |i: usize| {
                        format!(
                            "let pair_{i}_{j} = weighed(row, base + other{j}, tile + quad * 4u + {i}u, last, \
                             score_{i}_{j}, gradient_{i}_{j}, sum_logs[other{j}], mean_slopes[other{j}]);\n"
                        )
                    };
                    format!(
                        "let other{j} = column + {j}u * COLUMNS;\n{}weights[other{j} * QUADS_STRIDE + quad] = {};\n\
                         slopes[other{j} * QUADS_STRIDE + quad] = {};\n",
                        (0..4).map(pair).collect::<String>(),
                        four(|i| format!("pair_{i}_{j}.x")),
                        four(|i| format!("pair_{i}_{j}.y")),
                    )
                })
                .collect();
            let place = "(row * constants.keys + own) * KEY_VALUE_HEADS + head";
            let shader = self
                .tiled(" keys", include_str!("tiles_keys.wgsl"), functions, tiles)
                .section("ZERO", tiles.zero(&["dk", "dv"]))
                .section("SCORES", tiles.scores(&products(["keys", "values"], ["asked", "given"])))
                .section("WEIGHED", weighed)
                .section("GATHER", tiles.gather(&[["dv", "weights", "given"], ["dk", "slopes", "asked"]]))
                .section("STORE", tiles.store(&["dk", "dv"], "constants.keys", place, |_, _| String::new()));
            let shader = self
                .masks(with_operands(shader), recorder, 6)?
                .write("dk", vector, recorder.write(1)?)
                .write("dv", vector, recorder.write(2)?);
            return self.run_in_tiles(shader, recorder, self.key_value_heads, self.keys.div_ceil(tiles.own));
        }
        let shader = self
            .shader(format!("{self} keys"), include_str!("keys.wgsl"), functions)
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
            .section("STORE", each(n, |u| format!("store_dk(mine, {u}u, dk{u});\nstore_dv(mine, {u}u, dv{u});")));
        let shader = self
            .masks(with_operands(shader), recorder, 6)?
            .write("dk", vector, recorder.write(1)?)
            .write("dv", vector, recorder.write(2)?);
        self.run(shader, recorder, self.key_value_heads, self.keys)
    }
}

impl GpuOperation for CacheAppend {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, cache) = (recorder.read(0)?, recorder.write(0)?);
        let elements = x.elements;
        Shader::new("cache_append", include_str!("cache.wgsl"))
            .read("x", "f32", x)
            .write("cache", "f32", cache)
            .number("time", self.time)
            .number("capacity", self.capacity)
            // Of one step.
            .number("features", self.features)
            .number("elements", elements)
            .elements(recorder, elements)
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
