// What a batch in one piece has is what the whole has: one thread a channel.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    first[i] = first_here[i];
    second[i] = second_here[i];
    #{UNBIASED}
}
