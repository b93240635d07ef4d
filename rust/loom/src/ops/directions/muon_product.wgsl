// C = scale P Q + share D, a tile of C for each workgroup.

var<workgroup> left: array<array<f32, TILE>, TILE>;
var<workgroup> right: array<array<f32, TILE>, TILE>;

fn main(group: u32, thread: u32) {
    let across = (constants.columns + TILE - 1u) / TILE;
    let own_row = thread / TILE;
    let own_column = thread % TILE;
    let row = group / across * TILE + own_row;
    let column = group % across * TILE + own_column;
    var sum = 0.0;
    for (var start = 0u; start < constants.depth; start += TILE) {
        var one = 0.0;
        if row < constants.rows && start + own_column < constants.depth {
            one = scratch[constants.p + row * constants.p_row + (start + own_column) * constants.p_column];
        }
        left[own_row][own_column] = one;
        one = 0.0;
        if column < constants.columns && start + own_row < constants.depth {
            one = scratch[constants.q + (start + own_row) * constants.q_row + column * constants.q_column];
        }
        right[own_row][own_column] = one;
        workgroupBarrier();
        for (var k = 0u; k < TILE; k += 1u) {
            sum = fma(left[own_row][k], right[k][own_column], sum);
        }
        workgroupBarrier();
    }
    if row < constants.rows && column < constants.columns {
        let place = row * constants.columns + column;
        // Nothing of what is not there yet.
        var made = constants.scale * sum;
        if constants.share != 0.0 {
            made += constants.share * scratch[constants.d + place];
        }
        scratch[constants.c + place] = made;
    }
}
