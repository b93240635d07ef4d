//! The area under the receiver operating characteristic, from the ranks of all scores.

/// Scores, and which of them are of the class that is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    scores: Vec<(f64, bool)>,
}

impl Ranks {
    pub(super) fn add(&mut self, score: f64, of_class: bool) {
        self.scores.push((score, of_class));
    }

    /// How probable it is that one of the class scores higher than one that is not, ties by half (Mann and Whitney
    /// 1947); NaN where all or none are, or a score is not a number.
    pub(super) fn area(&self) -> f64 {
        let mut scores = self.scores.clone();
        if scores.iter().any(|(score, _)| score.is_nan()) {
            return f64::NAN;
        }
        scores.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (mut below, mut pairs) = (0.0, 0.0);
        for tied in scores.chunk_by(|(a, _), (b, _)| a == b) {
            let of_class = tied.iter().filter(|(_, of_class)| *of_class).count() as f64;
            let others = tied.len() as f64 - of_class;
            pairs += of_class * (below + others / 2.0);
            below += others;
        }
        pairs / (below * (scores.len() as f64 - below))
    }
}
