// Products of int8 codes of activations and codes of a packed weight that is read word by word, summed exactly.

// The scale of the weights of a column that share one.
fn scale_at(number: u32, column: u32) -> f32 {
    #{SCALE}
}

#{ACTIVATE}

fn finish(row: u32, column: u32, sum: #{SUM}) {
    #{FINISH}
}

// A word of a row's codes, zeros past the last.
fn row_codes(row: u32, word: u32) -> u32 {
    if word >= constants.words {
        return 0u;
    }
    return codes[row * constants.words + word];
}

#{MAIN}
