// 1 at each position's class and 0 elsewhere, one element a thread.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let position = i % constants.inner;
    let class_number = i / constants.inner % constants.classes;
    let block = i / (constants.inner * constants.classes);
    let label = labels[block * constants.inner + position];
    y[i] = select(0.0, 1.0, label == i32(class_number));
}
