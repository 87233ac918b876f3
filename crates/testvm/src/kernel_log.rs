//! The guest's kernel log, and what in it means that something is wrong.

/// A line of the log that no test may leave behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line, counted from 0.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// The whole log of one machine.
#[derive(Clone, Debug, Default)]
pub struct KernelLog(String);

/// What the kernel says when it, or a device, misbehaves.
const BAD: [&str; 13] = [
    "BUG:",
    "Oops",
    "WARNING:",
    "Kernel panic",
    "general protection fault",
    "Call Trace:",
    "blocked for more than",
    "hung task",
    "soft lockup",
    "self-detected stall",
    "I/O error",
    "lost async page write",
    "refcount_t",
];

/// Lines that look bad and are not: the emulated machine is slow and has odd hardware.
const HARMLESS: [&str; 2] = [
    // The kernel's remark on a boot that is slower than it expects.
    "hrtimer: interrupt took",
    // No mitigations were asked for; nothing here guards a secret.
    "mitigations",
];

impl KernelLog {
    /// A log from its text, one message a line.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Lines that mean that something is wrong. A test that causes I/O errors on purpose says so by a line in the kernel
    /// log (`/dev/kmsg`) that holds `testvm: expect TEXT`: from there on, lines with that text are no complaint, up to
    /// `testvm: expect nothing`.
    #[must_use]
    pub fn complaints(&self) -> Vec<Complaint> {
        let mut expected: Option<&str> = None;
        let mut complaints = Vec::new();
        for (line, text) in self.0.lines().enumerate() {
            if let Some((_, what)) = text.split_once("testvm: expect ") {
                expected = (what.trim() != "nothing").then(|| what.trim());
                continue;
            }
            let bad = BAD.iter().any(|bad| text.contains(bad));
            let excused = HARMLESS.iter().any(|harmless| text.contains(harmless))
                || expected.is_some_and(|expected| text.contains(expected));
            if bad && !excused {
                complaints.push(Complaint {
                    line,
                    text: text.to_owned(),
                });
            }
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_found_and_others_are_not() {
        let cases = [
            ("[    1.0] ublk: module loaded", 0),
            (
                "[    1.0] Buffer I/O error on dev ublkb0, logical block 0",
                1,
            ),
            (
                "[    1.0] INFO: task fio:12 blocked for more than 120 seconds.",
                1,
            ),
            ("[    1.0] WARNING: CPU: 0 PID: 1 at block/x.c:1", 1),
            ("[    1.0] BUG: kernel NULL pointer dereference", 1),
            ("[    1.0] hrtimer: interrupt took 10 ns", 0),
            ("", 0),
        ];
        for (line, want) in cases {
            assert_eq!(KernelLog::new(line).complaints().len(), want, "{line}");
        }
    }

    #[test]
    fn a_test_may_excuse_what_it_causes_and_nothing_else() {
        let log = KernelLog::new(
            "testvm: expect I/O error\nI/O error, dev ublkb0\nBUG: bad\ntestvm: expect nothing\nI/O error, dev ublkb1\n",
        );
        let complaints = log.complaints();
        assert_eq!(complaints.len(), 2);
        assert_eq!(complaints[0].text, "BUG: bad");
        assert_eq!(complaints[1].line, 4);
    }
}
