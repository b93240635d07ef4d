//! The one error type of the engine.

use thiserror::Error;

/// What went wrong, sorted by what the caller can do about it.
///
/// Each message names the cell and the layer where there is one, what was
/// expected, what came, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Extents do not fit: a layer's input, an array handed in, a grid coordinate's layer stack.
    #[error("{0}")]
    Shape(String),
    /// A numeric type that cannot be used here.
    #[error("{0}")]
    DType(String),
    /// A value that is out of range, not finite, unknown or contradictory.
    #[error("{0}")]
    Value(String),
    /// A cell, layer or parameter that is not there.
    #[error("{0}")]
    Index(String),
    /// A device that is missing or failed.
    #[error("{0}")]
    Device(String),
    /// Memory that the system does not give, or that no system has.
    #[error("{0}")]
    Memory(String),
    /// A file that is not a loom checkpoint, or is damaged, or cannot be read back.
    #[error("{0}")]
    Serialization(String),
    /// The operating system refused a file operation.
    #[error("{context}: {source}")]
    Io {
        /// What was being done, with the path.
        context: String,
        /// The system's own error.
        #[source]
        source: std::io::Error,
    },
    /// A call that does not fit the present state, such as `backward` before `forward`.
    #[error("{0}")]
    State(String),
    /// A loss, gradient or weight became infinite or NaN.
    #[error("{0}")]
    NonFinite(String),
    /// A caller's callback asked to stop with an error of its own.
    #[error("callback failed: {0}")]
    Callback(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A bug in loom.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// The engine's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What errors say of weights that a device had alone, where nobody knows more of them.
pub(crate) const AS_READ_BACK: &str = "the weights are as they were when last read back from it";

/// Finds the known name nearest to `given`, to suggest it in an error message.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The error for an unknown name: lists the known ones and suggests the nearest.
pub(crate) fn unknown<'a>(
    what: &str,
    given: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Error {
    unknown_or(what, given, None, known)
}

/// The same where the name may be one that others have for something that is known.
pub(crate) fn unknown_or<'a>(
    what: &str,
    given: &str,
    ours: Option<&str>,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Error {
    let hint = match (ours, nearest(given, known.clone())) {
        (Some(name), _) => format!("; in loom that is \"{name}\"."),
        (None, Some(name)) => format!("; did you mean \"{name}\"?"),
        (None, None) => ".".into(),
    };
    let list: Vec<&str> = known.into_iter().collect();
    Error::Value(format!("unknown {what} \"{given}\"{hint} Known: {}", list.join(", ")))
}

/// The same error, its message led by the place it happened.
pub(crate) fn in_context(place: &str, error: Error) -> Error {
    match error {
        Error::Shape(message) => Error::Shape(format!("{place}: {message}")),
        Error::DType(message) => Error::DType(format!("{place}: {message}")),
        Error::Value(message) => Error::Value(format!("{place}: {message}")),
        Error::State(message) => Error::State(format!("{place}: {message}")),
        Error::NonFinite(message) => Error::NonFinite(format!("{place}: {message}")),
        Error::Memory(message) => Error::Memory(format!("{place}: {message}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_answered_in_whole_sentences() {
        let known = ["mse", "cross_entropy"];
        assert_eq!(
            unknown("loss", "cross-entropy", known).to_string(),
            "unknown loss \"cross-entropy\"; did you mean \"cross_entropy\"? Known: mse, cross_entropy"
        );
        assert_eq!(unknown("loss", "x", known).to_string(), "unknown loss \"x\". Known: mse, cross_entropy");
    }
}
