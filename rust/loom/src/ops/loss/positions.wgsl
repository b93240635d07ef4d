// The loss of each row of the batch: the sum over its positions, one workgroup a row.

#{JOIN}

fn main(row: u32, thread: u32) {
    var loss = 0.0;
    if row < constants.rows {
        for (var i = thread; i < constants.positions; i += THREADS) {
            loss += position_losses[row * constants.positions + i];
        }
    }
    loss = row_sum(thread, loss);
    if row < constants.rows && thread == 0u {
        losses[row] = loss;
    }
}
