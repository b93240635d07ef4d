// dx: the shares in the windows that an element lies under, in their order.

fn share(window: u32, place: vec3<u32>, at: u32) -> f32 {
    return dy[window] / elements(place);
}
