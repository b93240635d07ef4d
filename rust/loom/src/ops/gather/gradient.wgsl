// What each row of a table gathers, in the order in which its number occurs: a workgroup some columns
// of one row, which looks at THREADS numbers at a time.

var<workgroup> numbers: array<u32, THREADS>;

fn main(number: u32, thread: u32) {
    if number >= constants.groups {
        return;
    }
    let row = number / constants.across;
    let column = number % constants.across * THREADS + thread;
    let present = column < constants.width;
    let at = row * constants.width + column;
    var sum = 0.0;
    if present {
        sum = #{START};
    }
    for (var base = 0u; base < constants.count; base += THREADS) {
        workgroupBarrier();
        if base + thread < constants.count {
            numbers[thread] = min(u32(max(x[base + thread], 0.0)), VOCABULARY - 1u);
        }
        workgroupBarrier();
        if present {
            for (var i = 0u; i < min(THREADS, constants.count - base); i += 1u) {
                if numbers[i] == row {
                    sum += dy[(base + i) * constants.width + column];
                }
            }
        }
    }
    if present {
        gradient[at] = sum;
    }
}
