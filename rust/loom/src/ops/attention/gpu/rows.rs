//! Attention with a thread a query (or a key, for the gradients of keys and values), its vectors in registers, the
//! other side's in the workgroup's memory a few at a time.

use super::Attention;
use super::text::{Across, each};
use crate::shader::Shader;

/// Threads of a workgroup: queries, or keys, that are taken together.
pub(super) const THREADS: usize = 64;
/// Bytes of a workgroup's memory that every device has and this takes at most.
const SHARED: usize = 15 * 1024;
/// The most vectors of the other side that lie in the workgroup's memory at a time.
const TILE: usize = 32;

impl Attention {
    fn rows(&self, shader: Shader, vectors: usize) -> Across {
        // Two vectors lie in the workgroup's memory for each of the other side.
        let tile = (SHARED / (self.vectors().units() * 32)).clamp(1, TILE);
        Across { shader: shader.threads(THREADS).constant("TILE", tile), groups: vectors.div_ceil(THREADS) }
    }

    pub(super) fn forward_in_rows(&self) -> Across {
        let n = self.vectors().units();
        let functions = self.vectors().functions(&["q", "k", "v"], &["y"]);
        let gather = |u| format!("y{u} = fma(vec4<f32>(weight), values[j * UNITS + {u}u], y{u});");
        let shader = self
            .shader("", include_str!("forward.wgsl"), functions)
            .section("LOAD", each(n, |u| format!("let q{u} = load_q(mine, {u}u, present) * SCALE;")))
            .section("ZERO", each(n, |u| format!("var y{u} = vec4<f32>();")))
            .section("SCORE", each(n, |u| format!("products = fma(q{u}, keys[j * UNITS + {u}u], products);")))
            .section("FADE", each(n, |u| format!("y{u} *= fade;")))
            .section("GATHER", each(n, gather))
            .section("STORE", each(n, |u| format!("store_y(mine, {u}u, y{u} * whole);")));
        self.rows(shader, self.queries)
    }

    pub(super) fn queries_in_rows(&self) -> Across {
        let n = self.vectors().units();
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dq"]);
        let load = |u| {
            format!(
                "let q{u} = load_q(mine, {u}u, present) * SCALE;\nlet dy{u} = load_dy(mine, {u}u, present);"
            )
        };
        let score = |u| {
            format!(
                "products = fma(q{u}, keys[j * UNITS + {u}u], products);\n\
                 slopes = fma(dy{u}, values[j * UNITS + {u}u], slopes);"
            )
        };
        let gather = |u| format!("dq{u} = fma(vec4<f32>(slope), keys[j * UNITS + {u}u], dq{u});");
        let shader = self
            .shader(" queries", include_str!("queries.wgsl"), functions)
            .section("LOAD", each(n, load))
            .section("ZERO", each(n, |u| format!("var dq{u} = vec4<f32>();")))
            .section("SCORE", each(n, score))
            .section("GATHER", each(n, gather))
            .section("STORE", each(n, |u| format!("store_dq(mine, {u}u, dq{u} * SCALE);")));
        self.rows(shader, self.queries)
    }

    pub(super) fn keys_in_rows(&self) -> Across {
        let n = self.vectors().units();
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dk", "dv"]);
        let load =
            |u| format!("let k{u} = load_k(mine, {u}u, present);\nlet v{u} = load_v(mine, {u}u, present);");
        let score = |u| {
            format!(
                "products = fma(k{u}, asked[j * UNITS + {u}u], products);\n\
                 slopes = fma(v{u}, given[j * UNITS + {u}u], slopes);"
            )
        };
        let gather = |u| {
            format!(
                "dv{u} = fma(vec4<f32>(weight), given[j * UNITS + {u}u], dv{u});\n\
                 dk{u} = fma(vec4<f32>(slope), asked[j * UNITS + {u}u], dk{u});"
            )
        };
        let shader = self
            .shader(" keys", include_str!("keys.wgsl"), functions)
            .section("LOAD", each(n, load))
            .section("ZERO", each(n, |u| format!("var dk{u} = vec4<f32>();\nvar dv{u} = vec4<f32>();")))
            .section("SCORE", each(n, score))
            .section("GATHER", each(n, gather))
            .section(
                "STORE",
                each(n, |u| format!("store_dk(made, {u}u, dk{u});\nstore_dv(made, {u}u, dv{u});")),
            );
        self.rows(shader, self.keys)
    }
}
