//! Proofs, by name: longer runs of what the tests do shortly. Each ends with a line that says what was proven, in figures, and
//! fails when it was not.

pub(crate) mod crashes;
pub(crate) mod fuzz;
pub(crate) mod rounds;
pub(crate) mod simulation;
