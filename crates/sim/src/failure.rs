//! A rule that a run broke, with all that is needed to see it again.

/// What was wrong in a run, and how to repeat it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "seed {seed}, epoch {epoch}, step {step}: {what}\nsee it again with: SIM_SEED={seed} cargo test -p sim --test seeds"
)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch: how often the shard was started before.
    pub epoch: u32,
    /// The step in the epoch.
    pub step: u32,
    /// The broken rule.
    pub what: String,
}
