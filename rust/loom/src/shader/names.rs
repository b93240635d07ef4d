//! Names in the text of a kernel, and what becomes of them in another.

/// A name where it stands.
pub(super) struct Name<'a> {
    pub(super) text: &'a str,
    /// The name before it in its line.
    pub(super) before: &'a str,
    /// Whether it is one of a member, behind a point.
    pub(super) is_member: bool,
    /// The code of its line that follows.
    pub(super) after: &'a str,
}

/// Whether names have this character, as loom gives them.
pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Appends the text, with what `put` appends for each of its names; that says how much of what follows it has appended,
/// too. Comments stay.
pub(super) fn rewrite(text: &str, whole: &mut String, mut put: impl FnMut(&mut String, &Name<'_>) -> usize) {
    for line in text.split_inclusive('\n') {
        let (code, comment) = line.split_at(line.find("//").unwrap_or(line.len()));
        let mut rest = code;
        let mut before = "";
        while !rest.is_empty() {
            let length = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
            if length == 0 {
                let other = rest.find(is_of_name).unwrap_or(rest.len());
                whole.push_str(&rest[..other]);
                rest = &rest[other..];
                continue;
            }
            let (text, after) = rest.split_at(length);
            let is_member = whole.ends_with('.');
            rest = &after[put(whole, &Name { text, before, is_member, after })..];
            before = text;
        }
        whole.push_str(comment);
    }
}
