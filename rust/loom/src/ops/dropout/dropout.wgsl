    // Zeroes the elements whose word is below the threshold and multiplies the others.
    let keeps = words >= vec4<u32>(constants.threshold);
    let factor = constants.factor;
    if skip == 0u {
        // Selected, not multiplied: a dropped infinity is a zero. What lies beyond the last element in
        // its unit of four is nobody's.
        y[index] = select(vec4<f32>(), x[index] * factor, keeps);
        return;
    }
    // The run starts within a block.
