    let row = i / len;
    var sum = 0.0;
    for (var branch = 0u; branch < constants.branches; branch++) {
        let from_branch = row * constants.branches + branch;
        sum = fma(x[from_branch * len + place], weights[from_branch], sum);
    }
    y[i] = sum;
