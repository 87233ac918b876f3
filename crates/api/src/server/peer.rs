//! Who may speak: root, the daemon's own user, and members of the socket's group.
//!
//! The socket's mode makes the kernel refuse everybody else already; this check holds when somebody widens the mode. The
//! kernel records user, group and process id of the peer at connect time. Supplementary groups are read from
//! `/proc/PID/status`; the process id could have been reused since, which gains nothing but a second look.

use std::fs;

use tokio::net::UnixStream;
use tokio::net::unix::UCred;

use crate::v1::{Code, Problem};

/// What a peer is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    user: u32,
    group: u32,
}

impl Access {
    /// The daemon's effective user, and the socket's group.
    pub(super) fn of_this_process(group: u32) -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            group,
        }
    }

    /// Checks the peer. Reads a file of the proc file system if user and group do not decide.
    pub(super) fn check(self, stream: &UnixStream) -> Result<(), Problem> {
        let peer = stream.peer_cred().map_err(|error| {
            Problem::new(
                Code::PeerNotAllowed,
                format!("the credentials of the peer cannot be read: {error}"),
                "connect again",
            )
        })?;
        if self.allows(peer.uid(), peer.gid()) || self.has_group(&peer) {
            return Ok(());
        }
        Err(self.refusal(peer.uid(), peer.gid()))
    }

    const fn allows(self, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == self.user || gid == self.group
    }

    fn has_group(self, peer: &UCred) -> bool {
        // A peer of another process-id namespace has no id here.
        peer.pid()
            .filter(|pid| *pid > 0)
            .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
            .is_some_and(|status| groups(&status).any(|group| group == self.group))
    }

    fn refusal(self, uid: u32, gid: u32) -> Problem {
        Problem::new(
            Code::PeerNotAllowed,
            format!("user {uid} (group {gid}) may not use this socket"),
            format!("become root, or a member of group {}", self.group),
        )
        .about(format!("user {uid}"))
    }
}

/// The supplementary groups in the text of `/proc/PID/status`.
fn groups(status: &str) -> impl Iterator<Item = u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|group| group.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_own_user_and_the_group_are_let_in() {
        let access = Access {
            user: 900,
            group: 901,
        };
        for (uid, gid, expected) in [
            (0, 0, true),
            (900, 7, true),
            (1000, 901, true),
            (1000, 1000, false),
            (901, 900, false),
        ] {
            assert_eq!(access.allows(uid, gid), expected, "{uid} {gid}");
        }
    }

    #[test]
    fn supplementary_groups_are_read_from_the_status() {
        let found = |text| groups(text).collect::<Vec<_>>();
        assert_eq!(
            found("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"),
            [4, 24, 1000]
        );
        assert_eq!(found("Name:\tx\nGroups:\t\n"), [0_u32; 0]);
        assert_eq!(found(""), [0_u32; 0]);
    }
}
