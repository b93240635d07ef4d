//! WGSL of one unit's step, forward and backward: the cell's formulas, whichever kernel they stand in.

use super::{Cell, Recurrent};
use crate::shader::add_line;
use std::ops::Range;

/// What a unit's step forward keeps for the gradient, in order, by the names that [`Recurrent::cell_forward`] gives.
fn kept(cell: Cell) -> &'static [&'static str] {
    match cell {
        Cell::Tanh | Cell::Relu => &["h"],
        Cell::Lstm => &["i", "f", "g", "o", "c"],
        Cell::Gru => &["r", "z", "n", "z2"],
        Cell::ResetFirstGru => &["r", "z", "n", "q"],
    }
}

impl Recurrent {
    /// Declares `z0`, `z1`, ... of these gates: the sum before the state's share, which the products are added to;
    /// for a GRU also `x`, the input's share that its candidate takes after the reset gate.
    pub(super) fn cell_start(&self, gates: Range<usize>) -> String {
        let mut text = String::new();
        let out = &mut text;
        let (cell, units) = (self.cell, self.units);
        for gate in gates {
            let column = gate * units;
            let input = format!("load_input(first, time * {}u + {column}u + unit)", cell.gates() * units);
            let bias = format!("Lanes(bias[{column}u + unit])");
            let after_reset = cell == Cell::Gru && gate == 2;
            let start = match (after_reset, self.bias) {
                (false, true) => format!("{input} + {bias}"),
                (false, false) => input.clone(),
                (true, true) => bias,
                (true, false) => "Lanes()".into(),
            };
            add_line!(out, "var z{gate} = {start};");
            if after_reset {
                add_line!(out, "let x = {input};");
            }
        }
        text
    }

    /// From `z0`, `z1`, ... and `old`, h before the step, to `h`. `cells` is where an LSTM's c lies.
    pub(super) fn cell_forward(&self, cells: &str) -> String {
        let mut text = String::new();
        let out = &mut text;
        match self.cell {
            Cell::Tanh => add_line!(out, "let h = tanh_of(z0);"),
            Cell::Relu => add_line!(out, "let h = relu_of(z0);"),
            Cell::Lstm => {
                add_line!(out, "let i = sigmoid_of(z0);");
                add_line!(out, "let f = sigmoid_of(z1);");
                add_line!(out, "let g = tanh_of(z2);");
                add_line!(out, "let o = sigmoid_of(z3);");
                add_line!(out, "let last = {cells};");
                add_line!(out, "let c = select(last, fma(f, last, i * g), real);");
                add_line!(out, "{cells} = c;");
                add_line!(out, "let h = o * tanh_of(c);");
            }
            Cell::Gru => {
                add_line!(out, "let r = sigmoid_of(z0);");
                add_line!(out, "let z = sigmoid_of(z1);");
                add_line!(out, "let n = tanh_of(fma(r, z2, x));");
                add_line!(out, "let h = fma(z, old - n, n);");
            }
            Cell::ResetFirstGru => {
                add_line!(out, "let z = sigmoid_of(z1);");
                add_line!(out, "let n = tanh_of(z2);");
                add_line!(out, "let h = fma(z, old - n, n);");
            }
        }
        text
    }

    /// Keeps what the gradient needs of [`cell_forward`](Self::cell_forward).
    pub(super) fn cell_kept(&self) -> String {
        let early: &[&str] = if self.cell == Cell::ResetFirstGru { &["r", "q"] } else { &[] };
        self.keep(|name| !early.contains(&name))
    }

    /// The first half of a step of a GRU that resets first: from `z0` and `old` to `q`, `r h`, with what is kept.
    pub(super) fn cell_reset(&self) -> String {
        let text = "let r = sigmoid_of(z0);\nlet q = r * old;\n";
        text.to_owned() + &self.keep(|name| ["r", "q"].contains(&name))
    }

    /// Keeps some of what the gradient needs, where it is asked for.
    fn keep(&self, some: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        let kept = if self.keeps { kept(self.cell) } else { &[] };
        for (number, name) in kept.iter().enumerate().filter(|(_, name)| some(name)) {
            let at = format!("(time * {}u + {number}u) * UNITS + unit", kept.len());
            // Of a padded step only c counts, which is what it was.
            let value = if *name == "c" { "c".into() } else { format!("select(Lanes(), {name}, real)") };
            add_line!(&mut text, "store_saved(first, {at}, {value});");
        }
        text
    }

    /// The first half of a step backward of a GRU that resets first: `dn`, the gradient of the candidate's sum.
    pub(super) fn cell_candidate(&self) -> String {
        let at = |number: usize| format!("(time * 4u + {number}u) * UNITS + unit");
        format!(
            "let z = load_saved(first, {});\nlet n = load_saved(first, {});\nlet one = Lanes(1.0);\n\
             let dn = dh * (one - z) * (one - n * n);",
            at(1),
            at(2)
        )
    }

    /// From `dh` (and `dq`, the gradient of `r h` where that is multiplied) to the gradients of the gates and to
    /// `direct`, what of it does not pass through the product. `cells` is where the gradient of an LSTM's c lies, `share`
    /// where that of the state's share of a gate does.
    pub(super) fn cell_backward(&self, cells: &str, share: impl Fn(usize) -> String) -> CellGradient {
        let cell = self.cell;
        let mut loads = String::new();
        let kept = kept(cell);
        let mut names = kept.to_vec();
        for (number, name) in kept.iter().enumerate() {
            let at = format!("(time * {}u + {number}u) * UNITS + unit", kept.len());
            add_line!(&mut loads, "let {name} = load_saved(first, {at});");
        }
        if cell == Cell::Lstm {
            names.push("last");
            add_line!(&mut loads, "var last: Lanes;");
            add_line!(&mut loads, "if step > 0u {{");
            add_line!(&mut loads, "    last = load_saved(first, (earlier * 5u + 4u) * UNITS + unit);");
            add_line!(&mut loads, "}} else {{");
            add_line!(&mut loads, "    last = initial_state(first, UNITS + unit);\n}}");
        } else if cell.is_gru() {
            names.push("old");
            add_line!(&mut loads, "let old = load_before(first, time * UNITS + unit);");
        }
        let mut text = String::new();
        let out = &mut text;
        add_line!(out, "let one = Lanes(1.0);");
        // A gate's gradient, and where they differ that of the state's share.
        let gates: &[[&str; 2]] = match cell {
            Cell::Tanh => &[["dh * (one - h * h)"; 2]],
            Cell::Relu => &[["select(Lanes(), dh, h > Lanes())"; 2]],
            Cell::Lstm => {
                add_line!(out, "let t = tanh_of(c);");
                add_line!(out, "let after = {cells};");
                add_line!(out, "let dc = after + dh * o * (one - t * t);");
                add_line!(out, "{cells} = select(after, dc * f, real);");
                &[
                    ["dc * g * (i * (one - i))"; 2],
                    ["dc * last * (f * (one - f))"; 2],
                    ["dc * i * (one - g * g)"; 2],
                    ["dh * t * (o * (one - o))"; 2],
                ]
            }
            Cell::Gru => {
                add_line!(out, "let dn = dh * (one - z) * (one - n * n);");
                &[["dn * z2 * (r * (one - r))"; 2], ["dh * (old - n) * (z * (one - z))"; 2], ["dn", "dn * r"]]
            }
            Cell::ResetFirstGru => {
                add_line!(out, "let dn = dh * (one - z) * (one - n * n);");
                &[
                    ["dq * old * (r * (one - r))"; 2],
                    ["dh * (old - n) * (z * (one - z))"; 2],
                    ["dn", "Lanes()"],
                ]
            }
        };
        let mut stores = String::new();
        if self.cell_gradients {
            let state = if cell == Cell::Lstm { "dc" } else { "dh" };
            let at = "(time * DIRECTIONS + DIRECTION) * UNITS + unit";
            add_line!(&mut stores, "store_cell_gradient(first, {at}, select(Lanes(), {state}, real));");
        }
        for (number, [input, through_state]) in gates.iter().enumerate() {
            let at = format!("(time * GATES + {number}u) * UNITS + unit");
            add_line!(out, "let d{number} = select(Lanes(), {through_state}, real);");
            // The candidate's is being read by the others, for the gradient of what was reset first.
            if cell != Cell::ResetFirstGru || number < 2 {
                add_line!(out, "{} = d{number};", share(number));
            }
            if cell.splits_gradient() {
                add_line!(&mut stores, "store_share(first, {at}, d{number});");
                add_line!(&mut stores, "store_dx(first, {at}, select(Lanes(), {input}, real));");
            } else {
                add_line!(&mut stores, "store_dx(first, {at}, d{number});");
            }
        }
        let direct = match cell {
            Cell::Gru => "dh * z",
            Cell::ResetFirstGru => "fma(dq, r, dh * z)",
            _ => "Lanes()",
        };
        add_line!(out, "let direct = {direct};");
        CellGradient { names, loads, gates: text, stores }
    }
}

/// WGSL of one unit's step backward, in the order in which it has to come.
pub(super) struct CellGradient {
    /// What `loads` reads, by name.
    pub(super) names: Vec<&'static str>,
    /// Reads what the step forward has left.
    pub(super) loads: String,
    /// Makes the gradients.
    pub(super) gates: String,
    /// Writes them where others than this loop read them.
    pub(super) stores: String,
}

impl CellGradient {
    /// All of it, one after the other.
    pub(super) fn whole(self) -> String {
        self.loads + &self.gates + &self.stores
    }
}
