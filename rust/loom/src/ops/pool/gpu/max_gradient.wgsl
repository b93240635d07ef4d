// dx: the gradients of the windows whose maximum an element is, in their order.

fn share(window: u32, place: vec3<u32>, at: u32) -> f32 {
    return select(0.0, dy[window], indices[window] == i32(at));
}
