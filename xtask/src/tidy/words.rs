//! Rule `word`: no file names a directory of one machine or a package mirror.

use super::Finding;
use super::files::Text;

/// Directories of one machine, split so that this file names none.
const DIRS: [[&str; 2]; 2] = [["/wo", "rk"], ["/ro", "ot"]];
/// Hosts of package archives and registries; they differ from machine to machine.
const HOSTS: [[&str; 2]; 8] = [
    ["deb", "debian.org"],
    ["ftp", "debian.org"],
    ["security", "debian.org"],
    ["snapshot", "debian.org"],
    ["index", "crates.io"],
    ["static", "crates.io"],
    ["proxy", "golang.org"],
    ["files", "pythonhosted.org"],
];

pub(super) fn check(text: &Text, findings: &mut Vec<Finding>) {
    for (index, line) in text.content.lines().enumerate() {
        let mut find =
            |what: String| findings.push(Finding::new(&text.path, index + 1, "word", what));
        for dir in DIRS.iter().map(|parts| parts.concat()) {
            if names_dir(line, &dir) {
                find(format!("`{dir}` is a directory of one machine"));
            }
        }
        for host in HOSTS.iter().map(|parts| parts.join(".")) {
            if line.contains(&host) {
                find(format!(
                    "`{host}` is a package host; the machine's own set-up names it"
                ));
            }
        }
    }
}

/// Whether the line names the absolute path or something below it.
fn names_dir(line: &str, dir: &str) -> bool {
    line.match_indices(dir).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line
            .get(at + dir.len()..)
            .and_then(|text| text.chars().next());
        let begins = before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}>~)]*$".contains(c));
        let ends = after.is_none_or(|c| !c.is_alphanumeric() && !"_-.".contains(c));
        begins && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_machine_are_found_and_longer_names_are_not() {
        let [work, root] = DIRS.map(|parts| parts.concat());
        let cases = [
            (format!("cd {work}/main"), 1),
            (format!("HOME={root}"), 1),
            (format!("\"{root}/x\""), 1),
            (format!("{work}space and {root}fs"), 0),
            (format!("/rw{work} and ./{root} and dir{work}"), 0),
            ("net-work".to_owned(), 0),
        ];
        for (content, want) in cases {
            let mut findings = Vec::new();
            let text = Text {
                path: "x".to_owned(),
                content: content.clone(),
            };
            check(&text, &mut findings);
            assert_eq!(findings.len(), want, "{content}");
        }
    }

    #[test]
    fn package_hosts_are_found() {
        let mut findings = Vec::new();
        let text = Text {
            path: "x".to_owned(),
            content: format!(
                "http://{}/debian\nhttps://www.debian.org\n",
                HOSTS[0].join(".")
            ),
        };
        check(&text, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 1);
    }
}
