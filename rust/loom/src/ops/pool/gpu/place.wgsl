// Plane, row and column of an element of a volume with these extents.
fn place_of(at: u32, depth: u32, height: u32, width: u32) -> vec3<u32> {
    let line = at / width;
    if (depth == 1u) {
        return vec3<u32>(0u, line, at % width);
    }
    return vec3<u32>(line / height, line % height, at % width);
}
