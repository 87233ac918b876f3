//! What an earlier run left is taken down by the same engine.

use std::sync::Arc;

use block::DeviceId;
use manager::{
    DeviceRecord, Instance, KernelDevice, KernelState, Phase, Record, RecordState, Serial, Stamp,
    StoredRecord,
};

use crate::rig::{Reply, Rig, request, settings};

fn serial(number: u32) -> Serial {
    Serial::new(number).unwrap()
}

fn record(number: u32, name: &str, state: RecordState) -> StoredRecord {
    let record = Record::Device(DeviceRecord {
        serial: serial(number),
        request: Arc::new(request(name)),
        state,
    });
    StoredRecord {
        key: record.key(),
        value: record.encode().unwrap(),
    }
}

fn device(id: u32, instance: u32, number: u32) -> KernelDevice {
    KernelDevice {
        id: DeviceId(id),
        stamp: Some(Stamp {
            instance: Instance::new(instance).unwrap(),
            serial: serial(number),
        }),
        state: KernelState::Quiesced,
        server_alive: false,
    }
}

#[test]
fn strays_are_removed_with_their_records_and_without_a_drain() {
    let live = RecordState::Live { id: DeviceId(3) };
    let records = vec![
        record(0, "a", live),
        record(1, "stale", RecordState::Creating),
    ];
    let mut rig = Rig::with_inventory(settings(), records, vec![device(3, 1, 0)]);
    let busy = rig.create(request("a"));
    assert_eq!(rig.denial(busy), "busy");
    rig.run();
    let of = |name: &str| -> Vec<_> {
        let prefix = format!("{name}.");
        let steps = rig.trace.iter().filter_map(|s| s.strip_prefix(&prefix));
        steps.map(str::to_owned).collect()
    };
    assert_eq!(of("a"), ["unpublish", "stop", "delete", "await_gone"]);
    assert_eq!(of("stale"), ["unpublish"]);
    rig.assert_clean();
    // The name is free, the serials go on.
    rig.create(request("a"));
    rig.run();
    assert_eq!(rig.device("a").serial, serial(2));
}

#[test]
fn a_stray_without_a_record_is_named_after_its_serial() {
    let mut rig = Rig::with_inventory(settings(), Vec::new(), vec![device(3, 1, 0xab)]);
    assert_eq!(rig.device("stray-0000ab").phase, Phase::Stopping);
    rig.run();
    rig.assert_clean();
}

#[test]
fn devices_of_another_installation_are_left_alone() {
    let mut rig = Rig::with_inventory(settings(), Vec::new(), vec![device(3, 2, 0)]);
    rig.run();
    assert!(rig.trace.is_empty());
    assert_eq!(rig.kernel.len(), 1);
    assert_eq!(rig.manager.findings().len(), 1);
}

/// Devices of a lost state directory carry a number that nobody knows any more: nothing removed them, and `remove --all`
/// removed none.
#[test]
fn what_another_installation_left_is_removed_by_number_and_nothing_else_is() {
    let served = KernelDevice {
        state: KernelState::Live,
        server_alive: true,
        ..device(4, 2, 1)
    };
    let foreign = KernelDevice {
        stamp: None,
        ..device(5, 2, 2)
    };
    let lost = device(3, 2, 0);
    let mut rig = Rig::with_inventory(settings(), Vec::new(), vec![lost, served, foreign]);
    rig.run();
    let own = rig.create(request("a"));
    rig.run();
    assert!(rig.replies[&own].is_ok());
    let stamp = Stamp {
        instance: Instance::new(1).unwrap(),
        serial: rig.device("a").serial,
    };
    let known = KernelDevice {
        stamp: Some(stamp),
        ..device(rig.device("a").id.unwrap().0, 1, 0)
    };
    for found in [served, foreign, known] {
        let reply = rig.remove_stray(found);
        assert_eq!(rig.denial(reply), "busy", "{found:?}");
    }
    rig.trace.clear();
    let reply = rig.remove_stray(lost);
    // Asked for twice, it is a device of this daemon by now.
    let again = rig.remove_stray(lost);
    assert_eq!(rig.denial(again), "busy");
    rig.run();
    assert!(rig.replies[&reply].is_ok());
    let steps: Vec<_> = rig.trace.iter().map(String::as_str).collect();
    let want = ["stop", "delete", "await_gone"].map(|step| format!("stray-2-000000.{step}"));
    assert_eq!(steps, want);
    // The other installation's serial is not taken for one of ours.
    assert!(rig.kernel.keys().all(|id| id.0 != 3));
    let next = rig.create(request("b"));
    rig.run();
    assert!(rig.replies[&next].is_ok());
    let late = {
        rig.tell(manager::Event::Shutdown);
        rig.remove_stray(device(9, 2, 9))
    };
    assert_eq!(rig.denial(late), "shutting_down");
}

#[test]
fn a_stray_that_resists_is_quarantined_and_can_be_removed_by_name() {
    let live = RecordState::Live { id: DeviceId(3) };
    let records = vec![record(0, "a", live)];
    let mut rig = Rig::with_inventory(settings(), records, vec![device(3, 1, 0)]);
    rig.script
        .insert("stop", vec![Reply::Fail(manager::FaultKind::Io)]);
    rig.run();
    // There is no char device to close, so there is no second means.
    assert_eq!(rig.device("a").phase, Phase::Quarantined);
    assert!(rig.journal.contains_key("device/000000"));
    let reply = rig.remove("a");
    rig.run();
    assert!(rig.replies[&reply].is_ok());
    rig.assert_clean();
}

#[test]
fn many_strays_are_removed_a_few_at_a_time() {
    let records: Vec<_> = (0..10)
        .map(|n| record(n, &format!("d{n}"), RecordState::Live { id: DeviceId(n) }))
        .collect();
    let kernel = (0..10).map(|n| device(n, 1, n)).collect();
    let mut rig = Rig::with_inventory(settings(), records, kernel);
    assert_eq!(rig.manager.status().turns_held, 2);
    assert_eq!(rig.orders.len(), 2);
    rig.run();
    rig.assert_clean();
}
