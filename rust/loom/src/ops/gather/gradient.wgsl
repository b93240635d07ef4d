// What each row of a table gathers, in the order in which its number occurs: a workgroup some columns of one row,
// whose threads look at a number each and tell the others by a bit where it is theirs.

const WORDS: u32 = THREADS / 32u;

// Of three rounds: while one is read the next one is made, and the one after that cleared.
var<workgroup> found: array<atomic<u32>, 3u * WORDS>;

fn main(group: u32, thread: u32) {
    if group >= constants.groups {
        return;
    }
    let row = group / constants.across;
    let column = group % constants.across * THREADS + thread;
    let present = column < constants.width;
    let at = row * constants.width + column;
    var sum = 0.0;
    if present {
        sum = #{START};
    }
    if thread < 3u * WORDS {
        atomicStore(&found[thread], 0u);
    }
    workgroupBarrier();
    var now = 0u;
    for (var base = 0u; base < constants.count; base += THREADS) {
        let next = select(now + WORDS, 0u, now == 2u * WORDS);
        if thread < WORDS {
            atomicStore(&found[next + thread], 0u);
        }
        let place = base + thread;
        if place < constants.count && min(u32(max(x[place], 0.0)), VOCABULARY - 1u) == row {
            atomicOr(&found[now + thread / 32u], 1u << (thread % 32u));
        }
        workgroupBarrier();
        for (var word = 0u; word < WORDS; word += 1u) {
            for (var bits = atomicLoad(&found[now + word]); bits != 0u; bits &= bits - 1u) {
                let occurrence = base + word * 32u + countTrailingZeros(bits);
                if present {
                    sum += dy[occurrence * constants.width + column];
                }
            }
        }
        now = next;
    }
    if present {
        gradient[at] = sum;
    }
}
