//! Rule `layer`: dependencies between crates point down, from policy to mechanism to vocabulary, along drawn lines only.

use super::Finding;
use crate::cargo::Metadata;

/// What a crate may depend on in the workspace. A new line is a decision about the architecture.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("block", &[]),
    ("ublk", &["block"]),
    ("overlaybd", &["block"]),
    ("reactor", &["block"]),
    ("store", &["block", "reactor"]),
    ("image", &["block", "overlaybd", "store"]),
    ("dataplane", &["block", "ublk", "reactor"]),
    ("manager", &["block"]),
    ("host", &["block", "ublk"]),
    ("api", &["block", "manager"]),
    (
        "blockyard",
        &[
            "api",
            "block",
            "dataplane",
            "host",
            "image",
            "manager",
            "overlaybd",
            "reactor",
            "store",
            "ublk",
        ],
    ),
    ("sim", &["block", "dataplane", "manager", "reactor", "ublk"]),
    ("testvm", &[]),
    ("xtask", &["testvm"]),
    // The kernel's own limit, for comparison: nothing of the data plane or the manager.
    ("bare", &["block", "reactor", "ublk"]),
];
/// Crates that any test may use.
const FOR_TESTS: [&str; 2] = ["sim", "testvm"];
/// Crates that do no I/O and read no clock, and what would let them.
const PURE: [&str; 3] = ["block", "overlaybd", "manager"];
const IO: [&str; 7] = [
    "tokio", "io-uring", "rustix", "redb", "hyper", "axum", "libc",
];
/// Crates below the control plane, and what belongs to it.
const DATA: [&str; 4] = ["ublk", "reactor", "dataplane", "image"];
const CONTROL: [&str; 4] = ["tokio", "hyper", "axum", "redb"];

pub(super) fn check(metadata: &Metadata, findings: &mut Vec<Finding>) {
    let members: Vec<&str> = metadata
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    for package in &metadata.packages {
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let for_tests = dependency.kind.as_deref() == Some("dev");
            let what = if members.contains(&name) {
                member_fault(&package.name, name, for_tests)
            } else {
                outside_fault(&package.name, name, for_tests)
            };
            if let Some(what) = what {
                let file = format!("{} (Cargo.toml)", package.name);
                findings.push(Finding::new(&file, 0, "layer", what));
            }
        }
    }
}

fn member_fault(package: &str, dependency: &str, for_tests: bool) -> Option<String> {
    if for_tests && FOR_TESTS.contains(&dependency) {
        return None;
    }
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package) else {
        return Some(format!("{package} has no place in the layers; give it one"));
    };
    (!allowed.contains(&dependency)).then(|| format!("{package} must not depend on {dependency}"))
}

fn outside_fault(package: &str, dependency: &str, for_tests: bool) -> Option<String> {
    if for_tests {
        return None;
    }
    if PURE.contains(&package) && IO.contains(&dependency) {
        return Some(format!(
            "{package} does no I/O and must not depend on {dependency}"
        ));
    }
    if DATA.contains(&package) && CONTROL.contains(&dependency) {
        return Some(format!(
            "{package} is below the control plane and must not depend on {dependency}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_point_down_along_drawn_lines() {
        let cases = [
            ("dataplane", "reactor", false, true),
            ("reactor", "dataplane", false, false),
            ("manager", "ublk", false, false),
            ("dataplane", "sim", true, true),
            ("dataplane", "sim", false, false),
            ("newcomer", "block", false, false),
        ];
        for (package, dependency, for_tests, allowed) in cases {
            let fault = member_fault(package, dependency, for_tests);
            assert_eq!(fault.is_none(), allowed, "{package} -> {dependency}");
        }
    }

    #[test]
    fn pure_crates_get_no_io_but_their_tests_may() {
        assert!(outside_fault("manager", "tokio", false).is_some());
        assert!(outside_fault("manager", "tokio", true).is_none());
        assert!(outside_fault("dataplane", "axum", false).is_some());
        assert!(outside_fault("api", "tokio", false).is_none());
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        // Depth-first: a crate that can reach itself is a cycle.
        fn reaches(from: &str, to: &str) -> bool {
            ALLOWED
                .iter()
                .filter(|(name, _)| *name == from)
                .flat_map(|(_, allowed)| allowed.iter())
                .any(|next| *next == to || reaches(next, to))
        }
        for (name, _) in ALLOWED {
            assert!(!reaches(name, name), "{name}");
        }
    }
}
