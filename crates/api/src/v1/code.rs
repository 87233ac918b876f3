//! Every error code, in one table. `docs/errors.md` holds the same table; a test compares them.
//!
//! A code never changes its name or its meaning. The exit codes of the command line are derived from it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! codes {
    ($($variant:ident, $name:literal, $status:literal, $title:literal, $meaning:literal;)+) => {
        /// What went wrong, as a stable word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        pub enum Code {
            $(
                #[doc = $meaning]
                #[serde(rename = $name)]
                $variant,
            )+
            /// A code of a newer release.
            #[serde(rename = "unrecognized", other)]
            Unrecognized,
        }

        impl Code {
            /// Every code this release sends.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Unrecognized => "unrecognized",
                }
            }

            /// The HTTP status that carries it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)+
                    Self::Unrecognized => 500,
                }
            }

            /// A short title, the same for each occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)+
                    Self::Unrecognized => "Unrecognized error",
                }
            }

            /// One sentence on when it occurs.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                    Self::Unrecognized => "A code of a newer release.",
                }
            }
        }
    };
}

codes! {
    MalformedRequest, "malformed_request", 400, "Malformed HTTP request", "The bytes are no HTTP/1.1 request.";
    InvalidJson, "invalid_json", 400, "Invalid JSON", "The body is not JSON or not UTF-8.";
    InvalidField, "invalid_field", 400, "Invalid field", "A field is unknown, missing, of the wrong type or out of range.";
    InvalidName, "invalid_name", 400, "Invalid device name", "The name is empty, too long or has a character that names may not have.";
    UnknownSpec, "unknown_spec", 400, "Unknown kind of device", "The spec does not begin with a known kind, such as `null:`, `raw:` or `overlaybd:`.";
    InvalidSpec, "invalid_spec", 400, "Invalid spec", "The kind is known, what follows it cannot be used.";
    InvalidSize, "invalid_size", 400, "Invalid size", "The size is 0, no multiple of 512 bytes, too large, or does not fit the source.";
    Usage, "usage", 400, "Wrong usage", "The command line or the configuration file cannot be used (not sent by the server).";
    PeerNotAllowed, "peer_not_allowed", 403, "Peer not allowed", "The process at the other end of the socket is neither root, nor the daemon's user, nor in the socket's group.";
    PermissionDenied, "permission_denied", 403, "Permission denied", "The kernel refused an access for lack of rights.";
    RouteNotFound, "route_not_found", 404, "No such route", "The path names nothing this interface has.";
    NotFound, "not_found", 404, "No such device", "There is no device of that name.";
    MethodNotAllowed, "method_not_allowed", 405, "Method not allowed", "The path exists but not with that method.";
    RequestTimeout, "request_timeout", 408, "Request timed out", "The head or the body of the request did not arrive in time.";
    NameTaken, "name_taken", 409, "Name taken", "A device of that name exists and was made from a different request.";
    Busy, "busy", 409, "Busy", "The device is in a state in which it cannot do that, or something still uses it.";
    SourceInUse, "source_in_use", 409, "Source in use", "The file is served by another device or locked by another process.";
    Cancelled, "cancelled", 409, "Cancelled", "A removal overtook the creation; the device does not exist.";
    BodyTooLarge, "body_too_large", 413, "Body too large", "The request's body is larger than 64 KiB.";
    UriTooLong, "uri_too_long", 414, "URI too long", "The request's path is longer than 2 KiB.";
    UnsupportedMediaType, "unsupported_media_type", 415, "Unsupported media type", "The body is not declared as `application/json`.";
    SourceNotFound, "source_not_found", 422, "Source not found", "The file that the spec names does not exist.";
    SourceDenied, "source_denied", 422, "Source not accessible", "The daemon may not open the file that the spec names.";
    SourceInvalid, "source_invalid", 422, "Source not usable", "The file that the spec names is a directory or otherwise cannot back a device.";
    HeadTooLarge, "head_too_large", 431, "Request head too large", "The request's head is larger than 16 KiB.";
    Internal, "internal", 500, "Internal error", "A bug: the task that handled the request panicked or broke an invariant.";
    CreateFailed, "create_failed", 500, "Creation failed", "A step of the creation failed; what was done has been undone.";
    StopFailed, "stop_failed", 500, "Stop failed", "A step of the removal failed or did not end in time; the detail names the step.";
    KernelRefused, "kernel_refused", 500, "Kernel refused", "A ublk control command failed.";
    IoFailed, "io_failed", 500, "I/O failed", "Reading or writing a file, the journal or a socket failed.";
    FeatureMissing, "feature_missing", 501, "Feature missing in the kernel", "The kernel does not offer what was asked for.";
    InvalidAnswer, "invalid_answer", 502, "Invalid answer", "What answered on the socket is not this interface (not sent by the server).";
    UblkMissing, "ublk_missing", 503, "No ublk in the kernel", "The ublk driver is not there: `/dev/ublk-control` is missing.";
    KernelTooOld, "kernel_too_old", 503, "Kernel too old", "The kernel is older than 6.8.";
    ShuttingDown, "shutting_down", 503, "Shutting down", "The daemon is about to end and creates nothing any more.";
    LimitReached, "limit_reached", 503, "Limit reached", "A limit of the daemon or of the host is used up; the detail names it.";
    DaemonUnreachable, "daemon_unreachable", 503, "Daemon not reachable", "Nothing listens on the socket (not sent by the server).";
    SocketInUse, "socket_in_use", 503, "Socket in use", "Another daemon listens on the socket (not sent by the server).";
    SocketBlocked, "socket_blocked", 503, "Socket path blocked", "Something that is no socket stands at the socket's path (not sent by the server).";
    DeadlineExceeded, "deadline_exceeded", 504, "Deadline exceeded", "The answer did not come in time; the request may still be carried out.";
    NoSpace, "no_space", 507, "No space", "The file system of the state directory or of a backing file is full.";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write;

    use super::*;

    #[test]
    fn codes_are_unique_snake_case_and_survive_json() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()));
            assert!(
                code.as_str()
                    .bytes()
                    .all(|byte| byte == b'_' || byte.is_ascii_lowercase())
            );
            assert!((400..600).contains(&code.status()));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<Code>(&json).unwrap(), *code);
        }
    }

    #[test]
    fn a_code_of_a_newer_release_is_kept_apart() {
        let code: Code = serde_json::from_str("\"out_of_cheese\"").unwrap();
        assert_eq!(code, Code::Unrecognized);
    }

    #[test]
    fn the_documentation_lists_every_code() {
        let mut table = String::from("| code | HTTP status | title | when |\n|---|---|---|---|\n");
        for code in Code::ALL {
            let (name, status) = (code.as_str(), code.status());
            writeln!(
                table,
                "| `{name}` | {status} | {} | {} |",
                code.title(),
                code.meaning()
            )
            .unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let documentation = std::fs::read_to_string(path).unwrap();
        assert!(
            documentation.contains(&table),
            "docs/errors.md needs this table:\n{table}"
        );
    }
}
