// Sums a step's losses, and decides whether the step may change the weights: not where the loss or
// the gradient norm is infinite or NaN, nor after a step that halted the frame. Where the loss is
// scaled, the scale may be the reason: it is halved, and doubled after many good steps.

var<workgroup> sums: array<f32, THREADS>;

fn main(thread: u32) {
    var sum = 0.0;
    for (var row = thread; row < constants.rows; row += THREADS) {
        sum += losses[row];
    }
    sums[thread] = sum;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        if thread < half {
            sums[thread] += sums[thread + half];
        }
        workgroupBarrier();
    }
    if thread == 0u {
        let loss = sums[0];
        var finite = is_finite(loss);
        var length = 0.0;
        if HAS_NORM {
            length = norm[0];
            finite = finite && is_finite(length);
        }
        // Where the measures judge steps, nothing else does.
        let action = #{ACTION};
        if JUDGED {
            finite = true;
        }
        // What the updates would make of finite gradients is no fault of the scale.
        var found = 0u;
        #{LOOKS}
        let refused = found;
        let left_out = !finite || refused != 0u || control.halted != 0u || action != 1.0;
        control.goes_back = select(0u, 1u, action == 2.0);
        var overflowed = false;
        if SCALED && control.halted == 0u {
            overflowed = !finite && control.scale > 1.0;
            if overflowed {
                control.scale *= 0.5;
                control.good_steps = 0u;
            }
            if finite && refused == 0u {
                control.good_steps += 1u;
                if control.good_steps >= GROWTH_STEPS {
                    control.good_steps = 0u;
                    control.scale = min(control.scale * 2.0, LARGEST_SCALE);
                }
            }
        }
        control.applies = select(1u, 0u, left_out);
        if left_out {
            control.skipped += 1u;
        }
        // The update before is none any more.
        control.skipped += control.goes_back;
        if (!finite || refused != 0u) && !overflowed && constants.halts != 0u && control.halted == 0u {
            control.halted = 1u;
            control.halted_step = constants.step;
        }
        var what = select(select(0u, 1u, left_out), 2u, overflowed);
        if refused != 0u && finite && (control.halted == 0u || control.halted_step == constants.step) {
            what = 8u * refused + 5u;
        }
        if action != 1.0 {
            what = 3u + control.goes_back;
        }
        outcomes[constants.step] =
            vec4<u32>(bitcast<u32>(loss), bitcast<u32>(length), what, bitcast<u32>(control.scale));
    }
}
