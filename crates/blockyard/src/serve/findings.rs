//! What was found at start, told to the operator: in the log, and in `status` for what stays.

use manager::{Finding, ReportReason, StrayReason};

/// Logs every finding; returns those that `status` shows as long as the daemon runs.
pub(crate) fn tell(findings: &[Finding]) -> Vec<api::v1::Finding> {
    findings.iter().filter_map(tell_one).collect()
}

fn tell_one(finding: &Finding) -> Option<api::v1::Finding> {
    match finding {
        Finding::Remove {
            device,
            record,
            reason,
            ..
        } => {
            let name = record
                .as_ref()
                .map(|record| record.request.name().to_string())
                .unwrap_or_default();
            let reason = match reason {
                StrayReason::Dead => "it serves nobody",
                StrayReason::Parked => "its server died",
                StrayReason::Orphaned => "its server died and the kernel has not noticed yet",
            };
            tracing::warn!(
                id = device.id.0,
                device = name,
                reason,
                "a device of an earlier run is removed"
            );
            None
        }
        Finding::Report { device, reason } => {
            let what = match reason {
                ReportReason::OtherInstance => {
                    "belongs to another installation (state directory); start that one's daemon to remove it, or, if its state is lost, remove it with `blockyard remove --stray ID`"
                }
                ReportReason::LiveServer => {
                    "is ours and a living process serves it; is another daemon running on this state directory?"
                }
                ReportReason::UnreadableRecord => {
                    "is ours and its record cannot be read; remove it by hand after a look at the journal"
                }
                ReportReason::StampMismatch { .. } => {
                    "has the number of a device of ours and another stamp; it is not touched"
                }
            };
            tracing::warn!(id = device.id.0, "a ublk device {what}");
            Some(api::v1::Finding {
                id: device.id.0,
                what: what.to_owned(),
            })
        }
        Finding::Ignore { .. } => None,
        Finding::Stale { record } => {
            tracing::info!(device = %record.request.name(), "a device of an earlier run is gone already; its record is dropped");
            None
        }
        Finding::Unreadable { key, error } => {
            tracing::error!(record = key, err = %error, "a record of the journal cannot be read; it is left alone");
            None
        }
    }
}
