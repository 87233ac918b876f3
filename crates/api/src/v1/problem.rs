//! Errors on the wire: problem documents after RFC 9457, with a stable code, the object and what to do.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::code::Code;

/// The media type of a problem document (RFC 9457, section 3).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was refused or failed.
///
/// The two texts that follow from the code are boxed, which keeps the type small enough to be returned by value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:blockyard:error:` and the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    /// A short title, the same for each occurrence of the code.
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// The stable code. Programs decide by it, never by the text.
    pub code: Code,
    /// One line: what failed, on which object, and why.
    pub detail: String,
    /// The object: a device's name, a path, a field. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// One line: what to do about it.
    pub advice: String,
}

impl Problem {
    /// A problem. Line breaks and other control characters in the texts are replaced: both are one line.
    #[must_use]
    pub fn new(code: Code, detail: impl AsRef<str>, advice: impl AsRef<str>) -> Self {
        Self {
            kind: format!("urn:blockyard:error:{}", code.as_str()).into(),
            title: code.title().into(),
            status: code.status(),
            code,
            detail: one_line(detail.as_ref()),
            object: None,
            advice: one_line(advice.as_ref()),
        }
    }

    /// The same problem, about that object.
    #[must_use]
    pub fn about(self, object: impl Into<String>) -> Self {
        Self {
            object: Some(object.into()),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    /// `<detail>; <advice>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.detail, self.advice)
    }
}

impl std::error::Error for Problem {}

/// Texts may quote what a client sent: a line break in it must not make a second line in a log.
fn one_line(text: &str) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whatever_it_quotes() {
        let problem = Problem::new(
            Code::NotFound,
            "no device \"a\nb\x1b[0m\"\n",
            "look\r\nhere",
        );
        assert!(!problem.to_string().chars().any(char::is_control));
    }

    #[test]
    fn the_document_has_the_members_of_rfc_9457_and_round_trips() {
        let problem =
            Problem::new(Code::NotFound, "no device \"a\"", "list the devices").about("a");
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:blockyard:error:not_found",
                "title": "No such device",
                "status": 404,
                "code": "not_found",
                "detail": "no device \"a\"",
                "object": "a",
                "advice": "list the devices",
            })
        );
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    }
}
