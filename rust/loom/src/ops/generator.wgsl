// The product in full: low and high word.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let left = (a >> 16u) * (b & 0xffffu);
    let right = (a & 0xffffu) * (b >> 16u);
    // None of these sums carries past 32 bits.
    let middle = left + (low >> 16u);
    let rest = (middle & 0xffffu) + right;
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (rest >> 16u));
}

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011).
fn philox(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var counter = start;
    var key = seed;
    for (var round = 0u; round < 10u; round += 1u) {
        let first = multiply(0xd2511f53u, counter.x);
        let second = multiply(0xcd9e8d57u, counter.z);
        counter = vec4<u32>(second.y ^ counter.y ^ key.x, second.x, first.y ^ counter.w ^ key.y, first.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}
