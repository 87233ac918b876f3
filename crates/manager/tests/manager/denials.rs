//! Every request that is refused at once, by its code.

use manager::{Event, Settings};

use crate::rig::{Rig, request, settings};

#[test]
fn unknown_names_are_not_found() {
    let mut rig = Rig::new(settings());
    let reply = rig.remove("nobody");
    assert_eq!(rig.denial(reply), "not_found");
}

#[test]
fn the_limit_of_devices_counts_every_state() {
    let settings = Settings {
        devices_max: 2,
        ..settings()
    };
    let mut rig = Rig::new(settings);
    rig.create(request("a"));
    rig.run();
    rig.create(request("b"));
    let reply = rig.create(request("c"));
    assert_eq!(rig.denial(reply), "limit_reached");
    rig.run();
    rig.remove("a");
    rig.run();
    let reply = rig.create(request("c"));
    rig.run();
    assert!(rig.replies[&reply].is_ok());
}

#[test]
fn a_device_on_its_way_out_is_busy_for_creates() {
    let mut rig = Rig::new(settings());
    rig.create(request("a"));
    rig.run();
    rig.remove("a");
    let reply = rig.create(request("a"));
    assert_eq!(rig.denial(reply), "busy");
}

#[test]
fn waiters_are_bounded() {
    let mut rig = Rig::new(settings());
    rig.create(request("a"));
    let mut last = rig.create(request("a"));
    for _ in 0..1024 {
        last = rig.create(request("a"));
    }
    assert_eq!(rig.denial(last), "too_many_requests");
    let removed = rig.remove("a");
    assert_eq!(rig.denial(removed), "too_many_requests");
    rig.run();
    assert_eq!(rig.replies.len(), rig.asked.len());
}

#[test]
fn after_the_shutdown_everything_is_still_answered() {
    let mut rig = Rig::new(settings());
    rig.tell(Event::Shutdown);
    let created = rig.create(request("a"));
    assert_eq!(rig.denial(created), "shutting_down");
    let removed = rig.remove("a");
    assert_eq!(rig.denial(removed), "not_found");
    let all = rig.remove_all();
    assert!(rig.replies[&all].is_ok());
}
