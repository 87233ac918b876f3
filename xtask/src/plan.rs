//! What passes between the host's and the guest's side of the VM stage: a plan in, a result per test out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One test of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedTest {
    /// Package and program, for people: `ublk::vm_control`.
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// Where it runs: its package's directory, as cargo does it.
    pub(crate) dir: PathBuf,
    /// It is killed after this time.
    pub(crate) limit_s: u64,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Passed,
    Failed,
    Skipped,
}

/// One line of the result file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TestResult {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) end: End,
    /// What it printed in lines that begin with [`FIGURES`], without that word.
    pub(crate) figures: Vec<String>,
}

/// How a test begins a line that is worth more than to be read when it fails.
pub(crate) const FIGURES: &str = "figures: ";

/// The plan's name in the shared directory.
pub(crate) const PLAN_FILE: &str = "plan.json";
/// The result file's name there. A line is written when its test has ended, so that a guest that dies loses none.
pub(crate) const RESULTS_FILE: &str = "results.jsonl";
