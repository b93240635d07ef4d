//! The texts of the kernels on matrix units that depend on how many fragments there are.

use super::{FRAGMENT, HALF_PADDING, OTHER, OWN, PADDING, SUBGROUP, Units};

/// Where the vector of a query lies among all, of a key, and where what a share makes of a key's does.
pub(super) const QUERY: &str = "(row * constants.queries + own) * HEADS + head";
pub(super) const KEY: &str = "(row * constants.keys + own) * KEY_VALUE_HEADS + head";
pub(super) const HOME: &str = "(home * constants.keys + own) * KEY_VALUE_HEADS + head";

/// What of four keys side by side a query sees.
pub(super) const SEEN_KEYS: &str = "fn seen4(row: u32, query: u32, key: u32) -> vec4<bool> {
    let present = query < constants.queries;
    return vec4<bool>(
        present && sees(row, query, key),
        present && sees(row, query, key + 1u),
        present && sees(row, query, key + 2u),
        present && sees(row, query, key + 3u),
    );
}
#{CAPPED}";

/// Which of four queries side by side see a key.
pub(super) const SEEN_QUERIES: &str = "fn seen4(row: u32, query: u32, key: u32, last: u32) -> vec4<bool> {
    let present = key < constants.keys;
    return vec4<bool>(
        present && query < last && sees(row, query, key),
        present && query + 1u < last && sees(row, query + 1u, key),
        present && query + 2u < last && sees(row, query + 2u, key),
        present && query + 3u < last && sees(row, query + 3u, key),
    );
}
#{CAPPED}";

/// Four scores at a time.
pub(super) const CAPPED: &str = "fn capped4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(capped(x.x), capped(x.y), capped(x.z), capped(x.w));
}
fn cap_slope4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(cap_slope(x.x), cap_slope(x.y), cap_slope(x.z), cap_slope(x.w));
}";

/// A matrix in the workgroup's memory: its array, and the words from one row to the next.
#[derive(Clone, Copy)]
struct Held<'a> {
    array: &'a str,
    stride: usize,
}

/// The expression of a matrix in the workgroup's memory, from this word of the array on.
fn load(how: &str, role: char, Held { array, stride }: Held<'_>, place: &str) -> String {
    format!("{how}<coop_mat16x16<f16, {role}>>(&{array}[{place}], {stride}u)")
}

/// `halves_NAME(vector, piece, present)` for each array of vectors: four elements rounded to binary16. What matrices are
/// loaded from has to be of their type: NVIDIA's driver compiles no other.
pub(super) fn half_functions(names: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "fn halves_{name}(vector: u32, piece: u32, present: bool) -> vec4<f16> {{\n    \
             return vec4<f16>(load_{name}(vector, piece, present));\n}}\n"
        )
    };
    names.iter().map(one).collect()
}

/// Products of the own side's vectors of this name, `own`, with those of the other side that are held from row `from`
/// on; they go to the scores from row `to` on.
#[derive(Clone, Copy)]
pub(super) struct Scoring {
    pub name: &'static str,
    pub own: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// A sum of the vectors that are held from row `from` on, by weights from row `rows` of an array on.
#[derive(Clone, Copy)]
pub(super) struct Gathering {
    pub name: &'static str,
    pub weights: &'static str,
    pub rows: &'static str,
    pub from: &'static str,
}

/// What is fetched of the other side: vectors of one or two arrays, and what goes with them.
pub(super) struct Fetched {
    arrays: Vec<&'static str>,
    depth: usize,
    /// Where the vector `other` lies among all.
    vector: &'static str,
    /// Whether they are queries, which bring the numbers that weights are made with.
    queries: bool,
}

impl Fetched {
    pub fn keys(arrays: &[&'static str], depth: usize) -> Self {
        let vector = "(row * constants.keys + other) * KEY_VALUE_HEADS + their_head";
        Self { arrays: arrays.to_vec(), depth, vector, queries: false }
    }

    pub fn queries(arrays: &[&'static str], depth: usize) -> Self {
        let vector = "(row * constants.queries + other) * HEADS + member";
        Self { arrays: arrays.to_vec(), depth, vector, queries: true }
    }

    /// Words of four elements of each array that a thread fetches.
    fn words(&self, units: Units) -> usize {
        OTHER * self.depth * FRAGMENT / 4 / units.threads()
    }

    /// Takes a thread's words of the vectors from this one on into registers, which are declared first.
    pub fn fetch(&self, units: Units, base: &str, declared: bool) -> String {
        let mut text = String::new();
        let words = self.words(units);
        let names = |array: &str| (0..words).map(|word| format!("next_{array}{word}")).collect::<Vec<_>>();
        if declared {
            for name in self.arrays.iter().flat_map(|array| names(array)) {
                text += &format!("var {name} = vec4<f16>();\n");
            }
            if self.queries {
                text += "var next_log = 0.0;\nvar next_mean = 0.0;\n";
            }
        }
        text += "{\n";
        for word in 0..words {
            text += &format!(
                "let at{word} = thread + {}u;\nlet other{word} = {base} + at{word} / PIECES;\n",
                word * units.threads()
            );
            let vector = self.vector.replace("other", &format!("other{word}"));
            for array in &self.arrays {
                text += &format!(
                    "next_{array}{word} = halves_{array}({vector}, at{word} % PIECES, other{word} < last);\n"
                );
            }
        }
        if self.queries {
            let vector = self.vector.replace("other", &format!("min({base} + thread, last - 1u)"));
            text += &format!(
                "if thread < OTHER {{\n    next_log = logs[{vector}];\n    next_mean = means[{vector}];\n}}\n"
            );
        }
        text + "}\n"
    }

    /// Puts what was fetched where the workgroup holds it.
    pub fn hold(&self, units: Units) -> String {
        let mut text = String::new();
        for word in 0..self.words(units) {
            let at = format!("(thread + {}u)", word * units.threads());
            for (number, array) in self.arrays.iter().enumerate() {
                let row = format!("{}u + {at} / PIECES", number * OTHER);
                text += &format!("held[({row}) * STRIDE + {at} % PIECES] = next_{array}{word};\n");
            }
        }
        if self.queries {
            text += "if thread < OTHER {\n    sum_logs[thread] = next_log;\n    mean_slopes[thread] = next_mean;\n}\n";
        }
        text
    }

    /// Both, one right after the other.
    pub fn at_once(&self, units: Units, base: &str) -> String {
        format!("{{\n{}{}}}\n", self.fetch(units, base, true), self.hold(units))
    }
}

impl Units {
    fn held(self) -> Held<'static> {
        Held { array: "held", stride: self.depth * FRAGMENT / 4 + HALF_PADDING }
    }

    /// Takes the subgroup's own vectors into registers, a fragment of each subgroup at a time.
    pub fn own(self, name: &str, array: &str, vector: &str, extent: &str) -> String {
        let mut text = String::new();
        for band in 0..self.bands() {
            text += &format!(
                "workgroupBarrier();\n\
                 for (var i = thread; i < {}u * PIECES; i += THREADS) {{\n    \
                 let own = tile + i / PIECES / {FRAGMENT}u * ROWS + {}u + i / PIECES % {FRAGMENT}u;\n    \
                 held[i / PIECES * STRIDE + i % PIECES] = halves_{array}({vector}, i % PIECES, own < {extent});\n\
                 }}\nworkgroupBarrier();\n",
                OWN / self.bands(),
                band * FRAGMENT
            );
            for d in 0..self.depth {
                let place = format!("subgroup * {FRAGMENT}u * STRIDE + {}u", d * 4);
                text += &format!("let {name}{band}_{d} = {};\n", load("coopLoadT", 'A', self.held(), &place));
            }
        }
        text
    }

    pub fn scored(self, Scoring { name, own, from, to }: Scoring) -> String {
        let mut text = String::new();
        for column in 0..OTHER / FRAGMENT {
            for band in 0..self.bands() {
                text += &format!("var {name}{band}_{column} = coop_mat16x16<f32, C>();\n");
            }
            for d in 0..self.depth {
                // The other side's vectors are rows, and columns of what is multiplied.
                let place = format!("({from} + {}u) * STRIDE + {}u", column * FRAGMENT, d * 4);
                let other = format!("{name}_other{column}_{d}");
                text += &format!("let {other} = {};\n", load("coopLoad", 'B', self.held(), &place));
                for band in 0..self.bands() {
                    let sum = format!("{name}{band}_{column}");
                    text += &format!("{sum} = coopMultiplyAdd({own}{band}_{d}, {other}, {sum});\n");
                }
            }
            for band in 0..self.bands() {
                text += &format!(
                    // What matrices are stored at wants a name.
                    "let {name}_at{band}_{column} = ({to} + subgroup * ROWS + {}u) * SCORES + {}u;\n\
                     coopStoreT({name}{band}_{column}, &scores[{name}_at{band}_{column}], {}u);\n",
                    band * FRAGMENT,
                    column * FRAGMENT / 4,
                    OTHER / 4 + PADDING
                );
            }
        }
        text
    }

    /// Scores of a thread's share as they are compared, and the largest of them.
    pub fn limited(self) -> String {
        let one = |i: usize| {
            format!(
                "let at{i} = side * SHARE + {i}u;\n\
                 let four{i} = limited(row, query, base + at{i} * 4u, whole, scores[mine * SCORES + at{i}]);\n\
                 larger = max(larger, largest_of(four{i}));\n"
            )
        };
        (0..self.share()).map(one).collect()
    }

    /// Weights of a thread's share, and their sum.
    pub fn weighed(self) -> String {
        let one = |i: usize| {
            format!(
                "let weight{i} = select(exp(four{i} - reference), vec4<f32>(), four{i} == vec4<f32>(LEAST));\n\
                 sum += weight{i};\nweights[mine * WEIGHTS + at{i}] = vec4<f16>(weight{i});\n"
            )
        };
        let all: String = (0..self.share()).map(one).collect();
        format!("var sum = vec4<f32>();\n{all}total += (sum.x + sum.y) + (sum.z + sum.w);\n")
    }

    /// Makes a number of the threads that look after one vector the same for all of them.
    pub fn agreed(self, name: &str, how: &str) -> String {
        match (self.sides(), how) {
            (1, _) => String::new(),
            (_, "+") => format!("{name} += subgroupShuffleXor({name}, 1u);"),
            _ => format!("{name} = {how}({name}, subgroupShuffleXor({name}, 1u));"),
        }
    }

    /// Sums of zero by these names.
    pub fn nothing(self, names: &[&str], declared: &str) -> String {
        let mut text = String::new();
        for name in names {
            for (band, d) in self.fragments() {
                text += &format!("{declared}{name}{band}_{d} = coop_mat16x16<f32, C>();\n");
            }
        }
        text
    }

    fn fragments(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.bands()).flat_map(move |band| (0..self.depth).map(move |d| (band, d)))
    }

    /// Adds to what is gathered.
    pub fn gathered(self, sums: &[Gathering]) -> String {
        let mut text = String::new();
        for Gathering { name, weights, rows, from } in sums {
            let held = Held { array: weights, stride: OTHER / 4 + HALF_PADDING };
            for k in 0..OTHER / FRAGMENT {
                for band in 0..self.bands() {
                    let place =
                        format!("({rows} + subgroup * ROWS + {}u) * WEIGHTS + {}u", band * FRAGMENT, k * 4);
                    text += &format!(
                        "let {name}_weights{band}_{k} = {};\n",
                        load("coopLoadT", 'A', held, &place)
                    );
                }
                for d in 0..self.depth {
                    let place = format!("({from} + {}u) * STRIDE + {}u", k * FRAGMENT, d * 4);
                    let other = format!("{name}_other{k}_{d}");
                    text += &format!("let {other} = {};\n", load("coopLoadT", 'B', self.held(), &place));
                    for band in 0..self.bands() {
                        let sum = format!("{name}{band}_{d}");
                        text +=
                            &format!("{sum} = coopMultiplyAdd({name}_weights{band}_{k}, {other}, {sum});\n");
                    }
                }
            }
        }
        text
    }

    /// Stores what is gathered, by way of the scores' memory: `extent` says how many vectors there are, `place` where the
    /// vector `own` lies among all; each is multiplied by a `factor` that may be that of `vector`.
    pub fn stored(self, names: &[&str], place: &str, extent: &str, factor: &str) -> String {
        let mut text = String::new();
        for name in names {
            for first in (0..self.depth).step_by(OTHER / FRAGMENT) {
                let columns = first..self.depth.min(first + OTHER / FRAGMENT);
                text += "workgroupBarrier();\n";
                for (band, d) in self.fragments().filter(|(_, d)| columns.contains(d)) {
                    text += &format!(
                        "let {name}_at{band}_{d} = (subgroup * ROWS + {}u) * SCORES + {}u;\n\
                         coopStoreT({name}{band}_{d}, &scores[{name}_at{band}_{d}], {}u);\n",
                        band * FRAGMENT,
                        (d - first) * FRAGMENT / 4,
                        OTHER / 4 + PADDING
                    );
                }
                let words = columns.len() * FRAGMENT / 4;
                text += &format!(
                    "workgroupBarrier();\n\
                     for (var i = lane; i < ROWS * {words}u; i += {SUBGROUP}u) {{\n    \
                     let vector = subgroup * ROWS + i / {words}u;\n    let own = tile + vector;\n    \
                     if own < {extent} {{\n        \
                     {name}[({place}) * UNITS + {}u + i % {words}u] = scores[vector * SCORES + i % {words}u]{factor};\n    \
                     }}\n}}\n",
                    first * FRAGMENT / 4
                );
            }
        }
        text
    }
}
