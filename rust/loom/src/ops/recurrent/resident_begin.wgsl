// Before anything is handed over; see gpu_resident.rs.

fn main(i: u32) {
    exchange[i] = 0xffffffffu;
}
