    let branch = i / len;
    y[i] = x[branch / constants.branches * len + place] * weights[branch];
