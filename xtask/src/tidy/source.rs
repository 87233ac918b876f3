//! A Rust file as lines of code and of comment: string contents and comments never look like code.

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code on it; string and character literals are empty, comments are gone.
    pub(crate) code: String,
    /// The text of its comments.
    pub(crate) comment: String,
}

impl Line {
    /// Whether it counts as code.
    pub(crate) fn is_code(&self) -> bool {
        !self.code.trim().is_empty()
    }
}

/// A parsed file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Relative to the workspace's root.
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
    /// The first line as it stands.
    pub(crate) first: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

impl Source {
    /// Splits the text. Never fails: what is no Rust gives odd lines, and the compiler complains elsewhere.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            lines: Scanner::new(text).scan(),
            first: text.lines().next().unwrap_or_default().to_owned(),
        }
    }

    /// The lines before the file's tests, numbered from 1.
    pub(crate) fn lines_without_tests(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.numbered()
            .take_while(|(_, line)| line.code.trim() != "#[cfg(test)]")
    }

    /// All lines, numbered from 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines
            .iter()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

struct Scanner {
    rest: std::vec::IntoIter<char>,
    state: State,
    lines: Vec<Line>,
    line: Line,
}

impl Scanner {
    fn new(text: &str) -> Self {
        Self {
            rest: text.chars().collect::<Vec<_>>().into_iter(),
            state: State::Code,
            lines: Vec::new(),
            line: Line::default(),
        }
    }

    fn scan(mut self) -> Vec<Line> {
        while let Some(c) = self.rest.next() {
            if c == '\n' {
                if self.state == State::LineComment {
                    self.state = State::Code;
                }
                self.lines.push(std::mem::take(&mut self.line));
                continue;
            }
            match self.state {
                State::Code => self.code(c),
                State::LineComment => self.line.comment.push(c),
                State::BlockComment(depth) => self.block_comment(c, depth),
                State::Text => match c {
                    '\\' if self.peek() != Some('\n') => {
                        self.rest.next();
                    }
                    '"' => self.leave_text(),
                    _ => {}
                },
                State::RawText(hashes) => {
                    let ends = self
                        .rest
                        .as_slice()
                        .iter()
                        .take_while(|c| **c == '#')
                        .count()
                        >= hashes;
                    if c == '"' && ends {
                        self.skip(hashes);
                        self.leave_text();
                    }
                }
            }
        }
        self.lines.push(self.line);
        self.lines
    }

    fn code(&mut self, c: char) {
        match (c, self.peek()) {
            ('/', Some('/')) => {
                self.skip(1);
                self.state = State::LineComment;
            }
            ('/', Some('*')) => {
                self.skip(1);
                self.state = State::BlockComment(1);
            }
            ('"', _) => {
                self.line.code.push('"');
                self.state = State::Text;
            }
            ('r', Some('"' | '#')) if !self.follows_word() => self.raw_text(),
            ('\'', _) => self.character(),
            _ => self.line.code.push(c),
        }
    }

    /// `r"…"`, `r#"…"#`, also behind `b` and `c`; but `r#type` is a name.
    fn raw_text(&mut self) {
        let rest = self.rest.as_slice();
        let hashes = rest.iter().take_while(|c| **c == '#').count();
        if rest.get(hashes) == Some(&'"') {
            self.skip(hashes + 1);
            self.line.code.push('"');
            self.state = State::RawText(hashes);
        } else {
            self.line.code.push('r');
        }
    }

    /// `'x'` and `'\n'`, but not the lifetime `'a`.
    fn character(&mut self) {
        let rest = self.rest.as_slice();
        let closing = if rest.first() == Some(&'\\') {
            // The character after the backslash is never the end, not even a quote.
            rest.iter()
                .skip(2)
                .position(|c| *c == '\'')
                .map(|at| at + 2)
        } else {
            (rest.get(1) == Some(&'\'')).then_some(1)
        };
        self.line.code.push('\'');
        if let Some(closing) = closing {
            self.skip(closing + 1);
            self.line.code.push('\'');
        }
    }

    fn block_comment(&mut self, c: char, depth: u32) {
        match (c, self.peek()) {
            ('*', Some('/')) => {
                self.skip(1);
                self.state = match depth {
                    1 => State::Code,
                    _ => State::BlockComment(depth - 1),
                };
            }
            ('/', Some('*')) => {
                self.skip(1);
                self.state = State::BlockComment(depth + 1);
            }
            _ => self.line.comment.push(c),
        }
    }

    fn leave_text(&mut self) {
        self.line.code.push('"');
        self.state = State::Code;
    }

    /// Whether the character before this one belongs to a name, other than the prefixes of a raw string.
    fn follows_word(&self) -> bool {
        let code = self.line.code.trim_end_matches(['b', 'c']);
        code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn peek(&self) -> Option<char> {
        self.rest.as_slice().first().copied()
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.rest.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        let source = Source::parse("x.rs", text);
        source.lines.into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_texts_are_no_code() {
        let cases = [
            ("a(); // unsafe", "a(); "),
            ("a(\"// not\"); b()", "a(\"\"); b()"),
            ("a(\"\\\"unsafe\"); b()", "a(\"\"); b()"),
            ("a('\"'); b('\\''); c", "a(''); b(''); c"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("a(r\"\\\"); b()", "a(\"\"); b()"),
            ("a(br#\"x\"y\"#); b()", "a(b\"\"); b()"),
            ("let r#type = 1;", "let r#type = 1;"),
            ("for x in y {}", "for x in y {}"),
            ("a /* b /* c */ d */ e", "a  e"),
        ];
        for (text, want) in cases {
            assert_eq!(code(text), [want], "{text}");
        }
    }

    #[test]
    fn texts_and_comments_span_lines() {
        let source = Source::parse("x.rs", "a(\"one\ntwo\"); b /* c\nd */ e\n//! doc\n");
        let lines: Vec<_> = source.lines.iter().map(|line| line.code.as_str()).collect();
        assert_eq!(lines, ["a(\"", "\"); b ", " e", "", ""]);
        assert_eq!(source.lines[2].comment, "d ");
        assert_eq!(source.lines[3].comment, "! doc");
        assert_eq!(source.lines.iter().filter(|line| line.is_code()).count(), 3);
    }
}
