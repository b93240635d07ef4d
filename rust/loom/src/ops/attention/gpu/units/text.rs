//! The texts of the kernels on matrix units that depend on how many fragments there are.

/// Rows and columns of a cooperative matrix: the vectors of its own side that a subgroup has.
pub(super) const FRAGMENT: usize = 16;
/// Threads of a subgroup.
const SUBGROUP: usize = 32;
/// Vectors of a workgroup's own side.
pub(super) const OWN: usize = 64;
/// Vectors of the other side that are looked at together.
pub(super) const OTHER: usize = 32;
pub(super) const THREADS: usize = OWN / FRAGMENT * SUBGROUP;
/// Threads that look after one vector.
pub(super) const SIDES: usize = SUBGROUP / FRAGMENT;
/// Words of four scores of one vector that a thread looks after.
pub(super) const SHARE: usize = OTHER / 4 / SIDES;

/// Words of four elements added to each row of f32 in a workgroup's memory, and of f16, so that rows start in different
/// banks.
pub(super) const PADDING: usize = 1;
pub(super) const HALF_PADDING: usize = 2;

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
    fragments: Fragments,
    /// Where the vector `other` lies among all.
    vector: &'static str,
    /// Whether they are queries, which bring the numbers that weights are made with.
    queries: bool,
}

impl Fetched {
    pub fn keys(arrays: &[&'static str], fragments: Fragments) -> Self {
        let vector = "(row * constants.keys + other) * KEY_VALUE_HEADS + their_head";
        Self { arrays: arrays.to_vec(), fragments, vector, queries: false }
    }

    pub fn queries(arrays: &[&'static str], fragments: Fragments) -> Self {
        let vector = "(row * constants.queries + other) * HEADS + member";
        Self { arrays: arrays.to_vec(), fragments, vector, queries: true }
    }

    /// Words of four elements of each array that a thread fetches.
    fn words(&self) -> usize {
        OTHER * self.fragments.depth * FRAGMENT / 4 / THREADS
    }

    /// Takes a thread's words of the vectors from this one on into registers, which are declared first.
    pub fn fetch(&self, base: &str, declared: bool) -> String {
        let mut text = String::new();
        let words = self.words();
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
                word * THREADS
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
    pub fn hold(&self) -> String {
        let mut text = String::new();
        for word in 0..self.words() {
            let at = format!("(thread + {}u)", word * THREADS);
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
    pub fn at_once(&self, base: &str) -> String {
        format!("{{\n{}{}}}\n", self.fetch(base, true), self.hold())
    }
}

/// Scores of a thread's share as they are compared, and the largest of them.
pub(super) fn limited() -> String {
    let one = |i: usize| {
        format!(
            "let at{i} = side * SHARE + {i}u;\n\
             let four{i} = limited(row, query, base + at{i} * 4u, whole, scores[mine * SCORES + at{i}]);\n\
             larger = max(larger, largest_of(four{i}));\n"
        )
    };
    (0..SHARE).map(one).collect()
}

/// Weights of a thread's share, and their sum.
pub(super) fn weighed() -> String {
    let one = |i: usize| {
        format!(
            "let weight{i} = select(exp(four{i} - reference), vec4<f32>(), four{i} == vec4<f32>(LEAST));\n\
             sum += weight{i};\nweights[mine * WEIGHTS + at{i}] = vec4<f16>(weight{i});\n"
        )
    };
    let all: String = (0..SHARE).map(one).collect();
    format!("var sum = vec4<f32>();\n{all}total += (sum.x + sum.y) + (sum.z + sum.w);\n")
}

/// Makes a number of the two threads that look after one vector the same for both: their sum, or the larger one.
pub(super) fn agreed(name: &str, how: &str) -> String {
    match how {
        "+" => format!("{name} += subgroupShuffleXor({name}, 1u);"),
        _ => format!("{name} = {how}({name}, subgroupShuffleXor({name}, 1u));"),
    }
}

/// The fragments of a vector.
#[derive(Clone, Copy)]
pub(super) struct Fragments {
    pub depth: usize,
}

impl Fragments {
    fn held(self) -> Held<'static> {
        Held { array: "held", stride: self.depth * FRAGMENT / 4 + HALF_PADDING }
    }

    /// Takes the subgroup's own vectors into registers, by way of the workgroup's memory.
    pub fn own(self, name: &str, array: &str, vector: &str, extent: &str) -> String {
        let mut text = format!(
            "workgroupBarrier();\n\
             for (var i = thread; i < OWN * PIECES; i += THREADS) {{\n    \
             let own = tile + i / PIECES;\n    \
             held[i / PIECES * STRIDE + i % PIECES] = halves_{array}({vector}, i % PIECES, own < {extent});\n\
             }}\nworkgroupBarrier();\n"
        );
        for d in 0..self.depth {
            let place = format!("subgroup * ROWS * STRIDE + {}u", d * 4);
            text += &format!("let {name}{d} = {};\n", load("coopLoadT", 'A', self.held(), &place));
        }
        text
    }

    pub fn scored(self, Scoring { name, own, from, to }: Scoring) -> String {
        let mut text = String::new();
        for column in 0..OTHER / FRAGMENT {
            text += &format!("var {name}{column} = coop_mat16x16<f32, C>();\n");
            for d in 0..self.depth {
                // The other side's vectors are rows, and columns of what is multiplied.
                let place = format!("({from} + {}u) * STRIDE + {}u", column * FRAGMENT, d * 4);
                let other = load("coopLoad", 'B', self.held(), &place);
                text += &format!("{name}{column} = coopMultiplyAdd({own}{d}, {other}, {name}{column});\n");
            }
            text += &format!(
                // What matrices are stored at wants a name.
                "let {name}_at{column} = ({to} + subgroup * ROWS) * SCORES + {}u;\n\
                 coopStoreT({name}{column}, &scores[{name}_at{column}], {}u);\n",
                column * FRAGMENT / 4,
                OTHER / 4 + PADDING
            );
        }
        text
    }

    /// Sums of zero by these names.
    pub fn nothing(self, names: &[&str], declared: &str) -> String {
        let zero = |name: &&str| {
            (0..self.depth)
                .map(|d| format!("{declared}{name}{d} = coop_mat16x16<f32, C>();\n"))
                .collect::<String>()
        };
        names.iter().map(zero).collect()
    }

    /// Adds to what is gathered.
    pub fn gathered(self, sums: &[Gathering]) -> String {
        let mut text = String::new();
        for Gathering { name, weights, rows, from } in sums {
            let held = Held { array: weights, stride: OTHER / 4 + HALF_PADDING };
            for k in 0..OTHER / FRAGMENT {
                let place = format!("({rows} + subgroup * ROWS) * WEIGHTS + {}u", k * 4);
                text += &format!("let {name}_weights{k} = {};\n", load("coopLoadT", 'A', held, &place));
                for d in 0..self.depth {
                    let place = format!("({from} + {}u) * STRIDE + {}u", k * FRAGMENT, d * 4);
                    let other = load("coopLoadT", 'B', self.held(), &place);
                    text += &format!("{name}{d} = coopMultiplyAdd({name}_weights{k}, {other}, {name}{d});\n");
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
                let words = columns.len() * FRAGMENT / 4;
                text += "workgroupBarrier();\n";
                for d in columns {
                    text += &format!(
                        "let {name}_at{d} = subgroup * ROWS * SCORES + {}u;\n\
                         coopStoreT({name}{d}, &scores[{name}_at{d}], {}u);\n",
                        (d - first) * FRAGMENT / 4,
                        OTHER / 4 + PADDING
                    );
                }
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
