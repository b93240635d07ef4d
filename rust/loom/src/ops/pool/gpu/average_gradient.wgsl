// dx: the shares in the windows that an element lies under, in their order.
@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read_write> dx: array<#{STORED}>;

fn share(window: u32, place: vec3<u32>, at: u32) -> f32 {
    return dy[window] / elements(place);
}
