//! Whether arrays hold rows of a shape, and what is likely meant where they do not.

use crate::tensor::{Shape, TensorView};
use crate::{Error, Result};

/// Checks that an array holds at least one row of this shape.
pub(crate) fn check_rows(array: &TensorView<'_>, row: &Shape, what: &str) -> Result<()> {
    let shape = array.shape();
    if shape.is_empty() || shape[1..] != row[..] {
        let hint = hint(shape, row).map_or(String::new(), |hint| format!("; {hint}"));
        return Err(Error::Shape(format!(
            "{what} has shape {}, expected (batch, {}{hint}",
            Shape::from(shape),
            row.to_string().trim_start_matches('(')
        )));
    }
    if shape[0] == 0 {
        return Err(Error::Value(format!("{what} is empty: it has no rows")));
    }
    Ok(())
}

/// How an array becomes rows of a shape, where one way is the likely one; in NumPy's words.
fn hint(shape: &[usize], row: &[usize]) -> Option<String> {
    if shape == row {
        return Some("for one sample add a batch axis, as in x[None]".into());
    }
    if shape == last(row) && row.len() > 2 {
        return Some(
            "channels come first, and a batch before them: np.moveaxis(x, -1, 0)[None] of one sample".into(),
        );
    }
    let [_, given @ ..] = shape else { return None };
    if given == last(row) {
        return Some(match row.len() {
            2 => "its last two axes are exchanged: np.swapaxes(x, 1, 2)".into(),
            _ => "channels come first: np.moveaxis(x, -1, 1)".into(),
        });
    }
    let as_many = given.iter().product::<usize>() == row.iter().product::<usize>();
    let extents = row.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if as_many && without_ones(given) == without_ones(row) {
        return Some(format!("x.reshape(-1, {extents}) brings it there"));
    }
    // The order of what is flat is the user's to know.
    (as_many && given.len().min(row.len()) == 1)
        .then(|| format!("x.reshape(-1, {extents}), if its numbers lie in that order"))
}

/// The extents with the first one, the channels, behind the others.
fn last(row: &[usize]) -> Vec<usize> {
    let mut turned = row.to_vec();
    turned.rotate_left(usize::from(!row.is_empty()));
    turned
}

fn without_ones(extents: &[usize]) -> Vec<usize> {
    extents.iter().copied().filter(|extent| *extent != 1).collect()
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn what_is_likely_meant_is_told() {
        let told: [(&[usize], &[usize], &str); 9] = [
            (&[8, 8, 3], &[8, 8, 3], "x[None]"),
            (&[5, 8, 9, 3], &[3, 8, 9], "np.moveaxis(x, -1, 1)"),
            (&[8, 9, 3], &[3, 8, 9], "np.moveaxis(x, -1, 0)[None]"),
            (&[2, 4, 8, 9, 3], &[3, 4, 8, 9], "np.moveaxis(x, -1, 1)"),
            (&[5, 6, 20], &[20, 6], "np.swapaxes(x, 1, 2)"),
            (&[5, 28, 28], &[1, 28, 28], "x.reshape(-1, 1, 28, 28) brings"),
            (&[5], &[1], "x.reshape(-1, 1) brings"),
            (&[5, 28, 28], &[784], "x.reshape(-1, 784), if"),
            (&[5, 784], &[1, 28, 28], "x.reshape(-1, 1, 28, 28), if"),
        ];
        for (shape, row, wanted) in told {
            let found = hint(shape, row).unwrap_or_default();
            assert!(found.contains(wanted), "{shape:?} for {row:?}: {found}");
        }
    }

    #[test]
    fn what_may_be_anything_is_left_open() {
        // Extents of images that are exchanged are no matter of a reshape.
        let open: [(&[usize], &[usize]); 5] = [
            (&[5, 3], &[4]),
            (&[5, 3, 32, 64], &[3, 64, 32]),
            (&[], &[1]),
            (&[5, 7, 9], &[3, 8, 9]),
            (&[5], &[7]),
        ];
        for (shape, row) in open {
            assert_eq!(hint(shape, row), None, "{shape:?} for {row:?}");
        }
    }
}
