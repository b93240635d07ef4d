// Adding just under half a unit carries into the kept half; ties carry where its last bit is odd.
fn code(bits: u32) -> u32 {
    return (bits + 0x7fffu + (bits >> 16u & 1u)) >> 16u;
}
