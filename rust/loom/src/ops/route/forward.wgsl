// Chooses the experts with the greatest logits: a thread a step.
fn chosen(step: u32, place: u32) -> u32 {
    return u32(choices[step * TOP_K + place]);
}

fn is_taken(step: u32, places: u32, expert: u32) -> bool {
    for (var place = 0u; place < places; place += 1u) {
        if chosen(step, place) == expert {
            return true;
        }
    }
    return false;
}

fn main(step: u32) {
    if step >= constants.steps {
        return;
    }
    let start = step * EXPERTS;
    for (var place = 0u; place < TOP_K; place += 1u) {
        var best = EXPERTS;
        var greatest = 0.0;
        for (var expert = 0u; expert < EXPERTS; expert += 1u) {
            if is_taken(step, place, expert) {
                continue;
            }
            if best == EXPERTS || logits[start + expert] > greatest {
                best = expert;
                greatest = logits[start + expert];
            }
        }
        choices[step * TOP_K + place] = f32(best);
    }
    let largest = logits[start + chosen(step, 0u)];
    var sum = 0.0;
    #{COUNTED}
    for (var place = 0u; place < TOP_K; place += 1u) {
        gates[step * TOP_K + place] = exp(logits[start + chosen(step, place)] - largest) / sum;
    }
}
