// dx: the gradients of the windows whose maximum an element is, in their order.
@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read> indices: array<i32>;
@group(0) @binding(2) var<storage, read_write> dx: array<#{STORED}>;

fn share(window: u32, place: vec3<u32>, at: u32) -> f32 {
    return select(0.0, dy[window], indices[window] == i32(at));
}
