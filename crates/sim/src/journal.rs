//! What happened, as a hash that two runs of one seed must share, and the first broken rule.

/// FNV-1a, 64 bits: stable across platforms and releases, unlike the standard hasher.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The record of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    hash: u64,
    events: u64,
    violation: Option<String>,
}

impl Journal {
    pub(crate) const fn new() -> Self {
        Self {
            hash: FNV_OFFSET,
            events: 0,
            violation: None,
        }
    }

    /// An event, as numbers that identify it.
    pub(crate) fn record(&mut self, what: [u64; 3]) {
        self.events += 1;
        for byte in what.iter().flat_map(|word| word.to_le_bytes()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// A rule was broken. Only the first one is kept: the others follow from it.
    pub(crate) fn violate(&mut self, what: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(what);
    }

    pub(crate) const fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_the_order_and_the_first_violation_stays() {
        let run = |events: [[u64; 3]; 2]| {
            let mut journal = Journal::new();
            events.into_iter().for_each(|event| journal.record(event));
            journal.hash()
        };
        assert_ne!(run([[1, 2, 3], [4, 5, 6]]), run([[4, 5, 6], [1, 2, 3]]));
        let mut journal = Journal::new();
        journal.violate(|| "first".to_owned());
        journal.violate(|| "second".to_owned());
        assert_eq!(journal.violation().map(String::as_str), Some("first"));
    }
}
