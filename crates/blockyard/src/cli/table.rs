//! Columns for people.

use std::fmt::Write;

/// Two spaces between columns, each as wide as its widest cell; the last is not padded.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a string has no way to fail.
            let _: std::fmt::Result = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let text = columns(&[row("NAME", "STATE"), row("a", "live"), row("longer", "")]);
        assert_eq!(text, "NAME    STATE\na       live\nlonger\n");
        assert_eq!(columns::<2>(&[]), "");
    }
}
