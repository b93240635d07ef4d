// What workgroups that stay hand to each other; see gpu_resident.rs.

var<workgroup> parts: array<vec4<f32>, THREADS * VECTORS>;
// What all units have handed over, rows side by side, and zeros to where the last share of a sum ends.
var<workgroup> held: array<vec4<f32>, HELD * VECTORS>;

// No number that is sent has these bits.
const NOTHING = 0xffffffffu;
// How often a value is looked at before it is given up, some seconds.
const PATIENCE = 1u << 22u;

var<private> given_up = false;

fn place_of(step: u32, block: u32, term: u32) -> u32 {
    return ((step * BLOCKS + block) * TERMS + term) * LANES;
}

// Term `term` of a row of the block.
fn send(step: u32, block: u32, term: u32, lane: u32, value: f32) {
    let bits = bitcast<u32>(value);
    atomicStore(&exchange[place_of(step, block, term) + lane], select(bits, 0x7fc00000u, bits == NOTHING));
}

// Four rows of a term, once all of them are there. Each value says by itself whether it has been sent, so that nothing
// is asked of the order in which stores arrive. What does not come for seconds is not a number, and so is all that
// is made of it.
fn receive(step: u32, block: u32, vector: u32) -> vec4<f32> {
    let at = place_of(step, block, vector / VECTORS) + vector % VECTORS * 4u;
    var bits = vec4<u32>(NOTHING);
    for (var looks = 0u; looks < PATIENCE; looks++) {
        bits = vec4<u32>(
            atomicLoad(&exchange[at]),
            atomicLoad(&exchange[at + 1u]),
            atomicLoad(&exchange[at + 2u]),
            atomicLoad(&exchange[at + 3u]),
        );
        if given_up || all(bits != vec4<u32>(NOTHING)) {
            return bitcast<vec4<f32>>(bits);
        }
    }
    given_up = true;
    return bitcast<vec4<f32>>(bits);
}
