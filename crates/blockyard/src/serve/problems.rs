//! Refusals and failures as problem documents: the one place where inner errors get their public code.

use std::io;
use std::path::Path;

use api::v1::{Code, Problem};
use manager::{
    Denied, DeviceName, Failure, Fate, Fault, FaultKind, NameError, Refusal, RequestError,
};
use ublk::{ErrorKind, Features, Probe};

use super::engine::EngineEnded;
use super::journal::JournalError;

/// The engine has ended.
pub(crate) fn engine_ended(error: EngineEnded) -> Problem {
    Problem::new(
        Code::ShuttingDown,
        error.to_string(),
        "start the daemon again",
    )
}

/// A bug.
pub(crate) fn internal(detail: &str) -> Problem {
    Problem::new(Code::Internal, detail, "report it with the daemon's log")
}

/// No such device.
pub(crate) fn not_found(name: &DeviceName) -> Problem {
    let detail = format!("there is no device {name}");
    Problem::new(
        Code::NotFound,
        detail,
        "list the devices with `blockyard list`",
    )
    .about(name.as_str())
}

/// A name that is none.
pub(crate) fn name(error: &NameError) -> Problem {
    with_advice(Code::InvalidName, &error.to_string())
}

/// A request that cannot be one.
pub(crate) fn request(name: &DeviceName, error: &RequestError) -> Problem {
    let (code, advice) = match error.code() {
        "invalid_name" => (Code::InvalidName, "choose another name"),
        "unknown_spec" => (Code::UnknownSpec, "use null:SIZE or raw:PATH"),
        "invalid_spec" => (Code::InvalidSpec, "use null:SIZE or raw:/ABSOLUTE/PATH"),
        "invalid_size" => (Code::InvalidSize, "give a multiple of 512 bytes such as 8G"),
        _ => (Code::InvalidField, "see `blockyard create --help`"),
    };
    with_advice_or(code, &format!("device {name}: {error}"), advice).about(name.as_str())
}

/// A request about one device that was refused or failed.
pub(crate) fn refusal(name: &DeviceName, refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::Denied(denied) => denial(denied).about(name.as_str()),
        Refusal::Failed(failure) => failed(failure).about(name.as_str()),
    }
}

/// No ublk device of that number.
pub(crate) fn no_kernel_device(id: u32) -> Problem {
    let detail = format!("the kernel has no ublk device {id}");
    Problem::new(
        Code::NotFound,
        detail,
        "see the findings of `blockyard status`",
    )
    .about(id.to_string())
}

/// A device of an installation whose daemon lives, whether that serves it at this moment or not.
pub(crate) fn stray_of_living(id: u32) -> Problem {
    let detail = format!("ublk device {id} belongs to another daemon, which is running");
    Problem::new(Code::Busy, detail, "leave it to that daemon").about(id.to_string())
}

/// A request about a left-over device that was refused or failed.
pub(crate) fn refusal_of_stray(id: u32, refusal: &Refusal) -> Problem {
    refusal_of_all(refusal).about(id.to_string())
}

/// A request about all devices that was refused.
pub(crate) fn refusal_of_all(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::Denied(denied) => denial(denied),
        Refusal::Failed(failure) => failed(failure),
    }
}

fn denial(denied: &Denied) -> Problem {
    let code = match denied {
        Denied::NameTaken { .. } => Code::NameTaken,
        Denied::NotFound { .. } => Code::NotFound,
        Denied::ShuttingDown { .. } => Code::ShuttingDown,
        Denied::LimitReached { .. } | Denied::TooManyRequests { .. } => Code::LimitReached,
        _ => Code::Busy,
    };
    with_advice(code, &denied.to_string())
}

fn failed(failure: &Failure) -> Problem {
    let code = match failure.first.fault.kind {
        FaultKind::BackingMissing => Code::SourceNotFound,
        FaultKind::BackingKind => Code::SourceInvalid,
        FaultKind::SizeInvalid => Code::InvalidSize,
        FaultKind::InUse if failure.first.step == manager::CreateStep::Open.into() => {
            Code::SourceInUse
        }
        FaultKind::Permission if failure.first.step == manager::CreateStep::Open.into() => {
            Code::SourceDenied
        }
        FaultKind::InUse => Code::Busy,
        FaultKind::Permission => Code::PermissionDenied,
        FaultKind::NoSpace => Code::NoSpace,
        FaultKind::LimitReached => Code::LimitReached,
        FaultKind::Unsupported => Code::FeatureMissing,
        FaultKind::Cancelled => Code::Cancelled,
        FaultKind::ShuttingDown => Code::ShuttingDown,
        FaultKind::DeadlineExceeded
        | FaultKind::Stuck
        | FaultKind::Panicked
        | FaultKind::Internal => match failure.first.step {
            manager::Step::Create(_) => Code::CreateFailed,
            manager::Step::Stop(_) => Code::StopFailed,
        },
        FaultKind::Journal => Code::IoFailed,
        _ => match failure.first.step {
            manager::Step::Create(manager::CreateStep::Open) => Code::IoFailed,
            manager::Step::Create(_) => Code::CreateFailed,
            manager::Step::Stop(_) => Code::StopFailed,
        },
    };
    // The user's own mistake needs no step names around it.
    if failure.others.is_empty()
        && failure.fate == Fate::Gone
        && failure.first.step == manager::CreateStep::Open.into()
    {
        return with_advice(
            code,
            &format!("device {}: {}", failure.name, failure.first.fault),
        );
    }
    with_advice(code, &failure.to_string())
}

/// The kernel cannot serve ublk devices, or this process may not.
pub(crate) fn kernel(error: &ublk::Error) -> Problem {
    let code = match error.kind() {
        ErrorKind::Missing => Code::UblkMissing,
        ErrorKind::Permission => Code::PermissionDenied,
        ErrorKind::Unsupported => Code::KernelTooOld,
        ErrorKind::LimitReached => Code::LimitReached,
        _ => Code::KernelRefused,
    };
    with_advice(code, &error.to_string())
}

/// Checks for the features that every device is made with; nothing falls back silently.
pub(crate) fn check_features(probe: &Probe) -> Result<(), Problem> {
    let needed = [
        Features::USER_COPY,
        Features::USER_RECOVERY,
        Features::USER_RECOVERY_REISSUE,
    ];
    for feature in needed {
        if !probe.features.contains(feature) {
            let detail = format!(
                "the ublk driver of kernel {} does not offer {feature}",
                probe.release
            );
            return Err(Problem::new(
                Code::FeatureMissing,
                detail,
                "run a kernel of 6.8 or newer",
            ));
        }
    }
    Ok(())
}

/// The state directory cannot be used.
pub(crate) fn journal(error: &JournalError) -> Problem {
    use std::error::Error;
    let code = match error {
        JournalError::InUse { .. } => Code::Busy,
        JournalError::NoDirectory { .. } => Code::Usage,
        JournalError::Directory { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Code::PermissionDenied
            }
            io::ErrorKind::StorageFull => Code::NoSpace,
            _ => Code::IoFailed,
        },
        JournalError::Open { .. } | JournalError::Damaged { .. } | JournalError::Thread(_) => {
            Code::IoFailed
        }
    };
    let problem = with_advice(code, &error.to_string());
    match error.source() {
        Some(source) => Problem {
            detail: format!("{}: {source}", problem.detail),
            ..problem
        },
        None => problem,
    }
}

/// The directory of the links cannot be used.
pub(crate) fn links(path: &Path, error: &io::Error) -> Problem {
    let detail = format!(
        "the links to devices cannot be kept in {}: {error}",
        path.display()
    );
    let code = if error.kind() == io::ErrorKind::PermissionDenied {
        Code::PermissionDenied
    } else {
        Code::IoFailed
    };
    let advice = if path.exists() && !path.is_dir() {
        "what stands there is no directory; move it away"
    } else {
        "make the directory and let the daemon write to it"
    };
    Problem::new(code, detail, advice)
}

/// The shards cannot be started.
pub(crate) fn shards(error: &reactor::Error) -> Problem {
    Problem::new(
        Code::LimitReached,
        format!("{}: {}", error.op, error.source),
        error.advice,
    )
}

/// The runtime cannot be started.
pub(crate) fn runtime(error: &io::Error) -> Problem {
    Problem::new(
        Code::LimitReached,
        format!("the control plane's threads cannot be started: {error}"),
        "check `ulimit -u`",
    )
}

/// The kernel's devices cannot be listed.
pub(crate) fn survey(fault: &Fault) -> Problem {
    with_advice(
        Code::KernelRefused,
        &format!("the kernel's ublk devices cannot be listed: {fault}"),
    )
}

/// The API server failed.
pub(crate) fn server(error: &io::Error) -> Problem {
    Problem::new(
        Code::IoFailed,
        format!("the API server failed: {error}"),
        "see the log above",
    )
}

/// Devices that a shutdown could not stop as it should.
pub(crate) fn stop_failed(failed: &[Failure]) -> Problem {
    let named = failed.iter().take(STOP_FAILED_NAMES_MAX);
    let named: Vec<_> = named
        .map(|failure| format!("{} (step {})", failure.name, failure.first.step))
        .collect();
    let more = failed.len().saturating_sub(named.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let detail = format!(
        "{} devices did not stop in order: {}{more}",
        failed.len(),
        named.join(", ")
    );
    Problem::new(Code::StopFailed, detail, "the log above says why for each")
}

/// Devices named in the last line of a daemon; the log names all.
const STOP_FAILED_NAMES_MAX: usize = 8;

/// Inner messages end in "; what to do": the wire keeps the two apart.
fn with_advice(code: Code, message: &str) -> Problem {
    with_advice_or(code, message, "see the daemon's log for more")
}

/// As [`with_advice`], with the advice for a message that brings none.
fn with_advice_or(code: Code, message: &str, otherwise: &str) -> Problem {
    match message.rsplit_once("; ") {
        Some((detail, advice)) => Problem::new(code, detail, advice),
        None => Problem::new(code, message, otherwise),
    }
}

#[cfg(test)]
mod tests {
    use api::v1::ByteSize;
    use block::{Access, ByteLen};
    use manager::{CreateParams, CreateRequest, Spec};

    use super::*;

    #[test]
    fn the_documented_example_is_a_real_answer() {
        let request = |size, access| {
            CreateRequest::new(CreateParams {
                name: "web".parse().unwrap(),
                spec: "raw:/srv/web.img".parse().unwrap(),
                size,
                access,
                queues: None,
                depth: None,
            })
            .unwrap()
        };
        let existing = request(Some(ByteLen(1 << 30)), Access::ReadWrite);
        let requested = request(None, Access::ReadOnly);
        let name = existing.name().clone();
        let denied = Denied::NameTaken {
            name: name.clone(),
            differences: existing.differences(&requested),
        };
        let problem = refusal(&name, &Refusal::Denied(denied));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let documentation = std::fs::read_to_string(path).unwrap();
        let example = documentation.split("```").nth(1).unwrap();
        let example: Problem = serde_json::from_str(example.trim_start_matches("json")).unwrap();
        assert_eq!(problem, example);
    }

    #[test]
    fn a_spec_and_the_size_beside_it_are_written_alike() {
        for text in ["512", "512B", "4k", " 8 GiB", "8gib", "3T", "2PiB", "7E"] {
            let Spec::Null { size } = format!("null:{text}").parse().unwrap() else {
                panic!("{text}")
            };
            assert_eq!(text.parse(), Ok(ByteSize(size.0)), "{text}");
        }
        for text in ["", "G", "8X", "8GB", "1.5G", "-8G", "8iB"] {
            let spec = format!("null:{text}").parse::<Spec>().unwrap_err();
            let beside = text.parse::<ByteSize>().unwrap_err();
            let advice = |line: String| line.rsplit_once("; ").unwrap().1.to_owned();
            assert_eq!(advice(spec.to_string()), advice(beside.to_string()));
        }
    }
}
