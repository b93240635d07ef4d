// The sums of squares of a parameter's weights and of their directions, of which every workgroup leaves its share.

#{RULE}
#{JOIN}

fn main(group: u32, thread: u32) {
    let now = steps[constants.step];
    let updates = (now.optimizer_step - control.skipped - 1u) * UPDATES + UPDATE + 1u;
    let scalars = scalars_for(rule_of(1.0, updates), DECAYS);
    let units = (constants.elements + 3u) / 4u;
    var sums = vec2<f32>();
    for (var i = group * THREADS + thread; i < units; i += constants.workgroups * THREADS) {
        // What lies beyond the last element in its unit of four is nobody's.
        let counts = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
        let w = master[i];
        let g = gradient[i];
        #{LOAD}
        let direction = vec4<f32>(#{DIRECTIONS});
        sums += vec2<f32>(
            dot(select(vec4<f32>(), w, counts), select(vec4<f32>(), w, counts)),
            dot(select(vec4<f32>(), direction, counts), select(vec4<f32>(), direction, counts)),
        );
    }
    let sum = join(thread, sums);
    if thread == 0u {
        squares[constants.first + group] = sum;
    }
}
