//! Attention as products of tiles: the texts of its three kernels.

use super::Attention;
use super::text::Across;
use super::tiles::{Tiles, four};

/// Where a query's vector lies among all, and where what a share makes of a key's does.
const QUERY: &str = "(row * constants.queries + own) * HEADS + head";
const KEY: &str = "(home * constants.keys + own) * KEY_VALUE_HEADS + head";

impl Attention {
    fn in_tiles(&self, part: &str, text: &str, functions: String, tiles: Tiles, vectors: usize) -> Across {
        let shader = tiles.declare(self.shader(part, text, functions));
        Across { shader, groups: vectors.div_ceil(tiles.own) }
    }

    pub(super) fn forward_in_tiles(&self, tiles: Tiles) -> Across {
        let seen = |j: usize| {
            four(|i| {
                let key = format!("base + column + {j}u * COLUMNS");
                format!("seen(row, head, tile + quad * 4u + {i}u, {key}, score_{i}_{j})")
            })
        };
        let functions = self.vectors().functions(&["q", "k", "v"], &["y"]);
        let share = |n, i| format!(" * fades[quad{n}][{i}]");
        let kernel = self.in_tiles("", include_str!("tiles_forward.wgsl"), functions, tiles, self.queries);
        let shader = kernel
            .shader
            .section("ZERO", tiles.zero(&["y"]))
            .section("SCORES", tiles.scores(&[["score", "asked", "keys"]]))
            .section("SEEN0", seen(0))
            .section("SEEN1", seen(1))
            .section("FADE", tiles.fade("y"))
            .section("GATHER", tiles.gather(&[["y", "weights", "values"]]))
            .section("STORE", tiles.store(&["y"], "constants.queries", QUERY, share));
        Across { shader, ..kernel }
    }

    pub(super) fn queries_in_tiles(&self, tiles: Tiles) -> Across {
        let slope = |j: usize| {
            four(|i| {
                format!(
                    "slope(row, head, tile + quad * 4u + {i}u, base + column + {j}u * COLUMNS, score_{i}_{j}, \
                     gradient_{i}_{j} * kept{j}[{i}], sum_logs[{i}], mean_slopes[{i}])"
                )
            })
        };
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dq"]);
        let products = [["score", "asked", "keys"], ["gradient", "given", "values"]];
        let scaled = |_, _| " * SCALE".to_string();
        let text = include_str!("tiles_queries.wgsl");
        let kernel = self.in_tiles(" queries", text, functions, tiles, self.queries);
        let shader = kernel
            .shader
            .section("ZERO", tiles.zero(&["dq"]))
            .section("SCORES", tiles.scores(&products))
            .section("SLOPE0", slope(0))
            .section("SLOPE1", slope(1))
            .section("GATHER", tiles.gather(&[["dq", "slopes", "keys"]]))
            .section("STORE", tiles.store(&["dq"], "constants.queries", QUERY, scaled));
        Across { shader, ..kernel }
    }

    pub(super) fn keys_in_tiles(&self, tiles: Tiles) -> Across {
        let weighed = |j: usize| {
            let pair = |i: usize| {
                format!(
                    "let pair_{i}_{j} = weighed(row, member, base + other{j}, tile + quad * 4u + {i}u, last, \
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
        };
        let functions = self.vectors().functions(&["q", "k", "v", "dy"], &["dk", "dv"]);
        let products = [["score", "keys", "asked"], ["gradient", "values", "given"]];
        let kernel = self.in_tiles(" keys", include_str!("tiles_keys.wgsl"), functions, tiles, self.keys);
        let shader = kernel
            .shader
            .section("ZERO", tiles.zero(&["dk", "dv"]))
            .section("SCORES", tiles.scores(&products))
            .section("WEIGHED", weighed(0) + &weighed(1))
            .section("GATHER", tiles.gather(&[["dv", "weights", "given"], ["dk", "slopes", "asked"]]))
            .section("STORE", tiles.store(&["dk", "dv"], "constants.keys", KEY, |_, _| String::new()));
        Across { shader, ..kernel }
    }
}
