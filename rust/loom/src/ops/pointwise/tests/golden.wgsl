fn linear_value(x: f32) -> f32 {
    return x;
}
fn linear_derivative(x: f32) -> f32 {
    return 1.0;
}

fn relu_value(x: f32) -> f32 {
    return loom_at_least(x, 0.0);
}
fn relu_derivative(x: f32) -> f32 {
    return select(0.0, 1.0, x > 0.0);
}

fn leaky_relu_value(x: f32) -> f32 {
    return select(x * 0.01, x, x > 0.0);
}
fn leaky_relu_derivative(x: f32) -> f32 {
    return select(0.01, 1.0, x > 0.0);
}

fn relu_squared_value(x: f32) -> f32 {
    let v0 = loom_at_least(x, 0.0);
    return v0 * v0;
}
fn relu_squared_derivative(x: f32) -> f32 {
    return sqrt(x) * 2.0;
}

fn scaled_relu_value(x: f32) -> f32 {
    return loom_at_least(x, 0.0) * 1.1;
}
fn scaled_relu_derivative(x: f32) -> f32 {
    return select(0.0, 1.1, x > 0.0);
}

fn sigmoid_value(x: f32) -> f32 {
    return loom_sigmoid(x);
}
fn sigmoid_derivative(x: f32) -> f32 {
    return x * (1.0 - x);
}

fn tanh_value(x: f32) -> f32 {
    return loom_tanh(x);
}
fn tanh_derivative(x: f32) -> f32 {
    return (1.0 - x) * (x + 1.0);
}

fn gelu_value(x: f32) -> f32 {
    return (x * 0.5) * (loom_erf(x * 0.70710677) + 1.0);
}
fn gelu_derivative(x: f32) -> f32 {
    return ((loom_erf(x * 0.70710677) + 1.0) * 0.5) + (x * (exp((x * x) * -0.5) * 0.3989423));
}

fn gelu_tanh_value(x: f32) -> f32 {
    return x * loom_sigmoid((x * (((x * x) * 0.044715) + 1.0)) * 1.5957692);
}
fn gelu_tanh_derivative(x: f32) -> f32 {
    let v0 = loom_at_least(x, -30.0);
    let v1 = loom_at_most(v0, 30.0);
    let v2 = v1 * v1;
    let v3 = loom_sigmoid((v1 * ((v2 * 0.044715) + 1.0)) * 1.5957692);
    return v3 + (((v3 * (1.0 - v3)) * v1) * (((v2 * 0.134145) + 1.0) * 1.5957692));
}

fn silu_value(x: f32) -> f32 {
    return x * loom_sigmoid(x);
}
fn silu_derivative(x: f32) -> f32 {
    let v0 = loom_sigmoid(x);
    return v0 * ((x * (1.0 - v0)) + 1.0);
}

fn softplus_value(x: f32) -> f32 {
    return loom_at_least(x, 0.0) + loom_ln_1p(exp(-abs(x)));
}
fn softplus_derivative(x: f32) -> f32 {
    return -loom_exp_m1(-x);
}

fn mish_value(x: f32) -> f32 {
    let v0 = exp(loom_at_most(x, 40.0));
    let v1 = v0 * (v0 + 2.0);
    return x * (v1 / (v1 + 2.0));
}
fn mish_derivative(x: f32) -> f32 {
    let v0 = loom_at_most(x, 40.0);
    let v1 = exp(v0);
    let v2 = v1 * (v1 + 2.0);
    let v3 = v2 + 2.0;
    return (v2 / v3) + ((v0 * (((v1 * (v1 + 1.0)) / v3) * 4.0)) / v3);
}

fn elu_value(x: f32) -> f32 {
    return select(loom_exp_m1(x) * 1.0, x, x > 0.0);
}
fn elu_derivative(x: f32) -> f32 {
    return select(x + 1.0, 1.0, x > 0.0);
}

fn hardswish_value(x: f32) -> f32 {
    let v0 = x + 3.0;
    let v1 = loom_at_least(v0, 0.0);
    return x * (loom_at_most(v1, 6.0) * 0.16666667);
}
fn hardswish_derivative(x: f32) -> f32 {
    return select(0.0, select(1.0, (x * 0.33333334) + 0.5, ((-x) + 3.0) > 0.0), (x + 3.0) > 0.0);
}

fn hardsigmoid_value(x: f32) -> f32 {
    let v0 = x + 3.0;
    let v1 = loom_at_least(v0, 0.0);
    return loom_at_most(v1, 6.0) * 0.16666667;
}
fn hardsigmoid_derivative(x: f32) -> f32 {
    return select(0.0, select(0.0, 0.16666667, ((-x) + 3.0) > 0.0), (x + 3.0) > 0.0);
}

fn selu_value(x: f32) -> f32 {
    return select(loom_exp_m1(x) * 1.7580993, x * 1.050701, x > 0.0);
}
fn selu_derivative(x: f32) -> f32 {
    return select(x + 1.7580993, 1.050701, x > 0.0);
}

