//! Benchmarks and proofs by name. Each answers a stated question and prints its figures.

use anyhow::{Context, Result, bail};

use crate::bench::{data_path, lifecycle};
use crate::console::say;
use crate::prove::{crashes, fuzz, rounds, simulation};

/// A named study.
pub(crate) struct Study {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// The question that it answers, in one line.
    pub(crate) question: &'static str,
    /// Runs it with its own options.
    pub(crate) run: fn(&[String]) -> Result<()>,
}

/// Every benchmark.
pub(crate) const BENCHMARKS: &[Study] = &[
    Study {
        name: "data-path",
        question: "how many instructions does one 4 KiB I/O cost, beside the kernel's null_blk and its loop driver?",
        run: data_path::run,
    },
    Study {
        name: "lifecycle",
        question: "how long do devices take to come and go, what does each cost, and what is the kernel's share?",
        run: lifecycle::run,
    },
];
/// Every proof.
pub(crate) const PROOFS: &[Study] = &[
    Study {
        name: "crashes",
        question: "does an upper keep what it promised, whatever a power cut or a failing file system leaves of its files?",
        run: crashes::run,
    },
    Study {
        name: "fuzz",
        question: "does any input make a decoder panic, hang, or take more memory than it may?",
        run: fuzz::run,
    },
    Study {
        name: "kills",
        question: "is everything that was flushed to an upper there after the daemon is killed in mid-write, again and again?",
        run: rounds::of_kills,
    },
    Study {
        name: "rounds",
        question: "do devices that are created and removed under load, hundreds of times, leave anything behind?",
        run: rounds::of_devices,
    },
    Study {
        name: "simulation",
        question: "do many seeds of the simulated data plane, with faults and power cuts, break a rule?",
        run: simulation::run,
    },
];

/// Runs the study of that name; lists the names when none is given.
pub(crate) fn run(
    kind: &str,
    studies: &[Study],
    name: Option<&str>,
    options: &[String],
) -> Result<()> {
    let Some(name) = name else {
        for study in studies {
            say(&format!("{}: {}", study.name, study.question));
        }
        if studies.is_empty() {
            say(&format!("there is no {kind} yet"));
        }
        return Ok(());
    };
    let Some(study) = studies.iter().find(|study| study.name == name) else {
        let names: Vec<_> = studies.iter().map(|study| study.name).collect();
        if names.is_empty() {
            bail!("no {kind} is called {name:?}; there is none yet");
        }
        bail!(
            "no {kind} is called {name:?}; there are: {}",
            names.join(", ")
        );
    };
    (study.run)(options).with_context(|| format!("{kind} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDIES: &[Study] = &[
        Study {
            name: "good",
            question: "does it run?",
            run: |_| Ok(()),
        },
        Study {
            name: "bad",
            question: "does it fail?",
            run: |options| bail!("it does {options:?}"),
        },
    ];

    #[test]
    fn a_study_runs_by_its_name_and_an_unknown_name_lists_them() {
        assert!(run("proof", STUDIES, Some("good"), &[]).is_ok());
        let error = run("proof", STUDIES, Some("bad"), &["-x".into()]).unwrap_err();
        assert_eq!(format!("{error:#}"), "proof bad: it does [\"-x\"]");
        let error = run("proof", STUDIES, Some("ugly"), &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"ugly\"") && error.contains("good, bad"),
            "{error}"
        );
        let error = run("proof", &[], Some("ugly"), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("none yet"), "{error}");
        assert!(run("proof", STUDIES, None, &[]).is_ok());
    }
}
