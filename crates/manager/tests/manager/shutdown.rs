//! The end of the process: limited, fair, hurried, and reported device by device.

use std::collections::BTreeSet;

use manager::{Answer, Event, Fate, FaultKind, Phase, Settings};

use crate::rig::{Reply, Rig, name, request, settings};

fn live(settings: Settings, count: usize) -> Rig {
    let mut rig = Rig::new(settings);
    for index in 0..count {
        rig.create(request(&format!("d{index}")));
    }
    rig.run();
    rig.trace.clear();
    rig
}

#[test]
fn an_empty_shutdown_is_done_at_once_and_once() {
    let mut rig = Rig::new(settings());
    rig.tell(Event::Shutdown);
    assert_eq!(rig.report, Some(manager::Report::default()));
    rig.tell(Event::Shutdown);
    rig.tell(Event::Hurry);
}

#[test]
fn every_device_stops_in_order_and_creates_are_refused() {
    let mut rig = live(settings(), 5);
    rig.tell(Event::Shutdown);
    // All records go in one bunch; only then the limit counts.
    assert_eq!(rig.writes.len(), 5);
    while !rig.writes.is_empty() {
        rig.answer_write(Reply::Done);
    }
    let at_work: BTreeSet<_> = rig.orders.iter().map(|order| order.name.clone()).collect();
    assert_eq!(at_work, BTreeSet::from([name("d0"), name("d1")]));
    let status = rig.manager.status();
    assert_eq!((status.turns_held, status.turns_waiting), (2, 3));
    let progress = status.shutdown.unwrap();
    assert_eq!(
        (progress.total, progress.done, progress.failed.len()),
        (5, 0, 0)
    );
    assert_eq!(progress.in_progress.len(), 2);
    assert_eq!(progress.in_progress[0].step.name(), "unpublish");

    let refused = rig.create(request("late"));
    assert_eq!(rig.denial(refused), "shutting_down");
    let known = rig.create(request("d0"));
    assert_eq!(rig.denial(known), "shutting_down");
    rig.run();
    let removed: Vec<_> = (0..5).map(|index| name(&format!("d{index}"))).collect();
    let report = rig.report.clone().unwrap();
    let ended: BTreeSet<_> = report.removed.iter().cloned().collect();
    assert_eq!(ended, removed.into_iter().collect());
    assert!(report.failed.is_empty());
    rig.assert_clean();
}

#[test]
fn zero_stops_all_at_the_same_time() {
    let settings = Settings {
        stop_concurrency: 0,
        ..settings()
    };
    let mut rig = live(settings, 5);
    rig.tell(Event::Shutdown);
    while !rig.writes.is_empty() {
        rig.answer_write(Reply::Done);
    }
    assert_eq!(rig.orders.len(), 5);
    rig.run();
    rig.assert_clean();
}

#[test]
fn a_device_that_hangs_delays_nobody_and_is_named_with_its_step() {
    let mut rig = live(settings(), 6);
    rig.tell(Event::Shutdown);
    let hangs = |rig: &Rig| rig.order("d2", "drain");
    // Everything answers but the drain of d2.
    while !rig.writes.is_empty() || rig.orders.iter().any(|o| hangs(&rig).as_ref() != Some(o)) {
        let next = rig.orders.iter().find(|o| hangs(&rig).as_ref() != Some(o));
        match next.map(|order| order.ticket) {
            Some(ticket) => rig.answer(ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    let progress = rig.manager.status().shutdown.unwrap();
    assert_eq!((progress.done, progress.failed.len()), (5, 0));
    assert_eq!(progress.in_progress[0].name, name("d2"));
    assert!(rig.report.is_none());
    assert!(rig.tick());
    rig.run();
    let report = rig.report.clone().unwrap();
    assert_eq!(report.removed.len(), 5);
    assert_eq!(report.failed.len(), 1);
    assert_eq!(report.failed[0].name, name("d2"));
    assert_eq!(report.failed[0].first.step.name(), "drain");
    assert_eq!(report.failed[0].fate, Fate::Gone);
    rig.assert_clean();
}

#[test]
fn devices_that_others_keep_open_take_no_turns() {
    let mut rig = live(settings(), 6);
    rig.tell(Event::Shutdown);
    // Everything is answered but the wait for the kernel's numbers.
    loop {
        let next = rig.orders.iter().find(|o| o.step.name() != "await_gone");
        match next.map(|order| order.ticket) {
            Some(ticket) => rig.answer(ticket, Reply::Done),
            None if rig.writes.is_empty() => break,
            None => rig.answer_write(Reply::Done),
        }
    }
    assert_eq!(rig.orders.len(), 6);
    let status = rig.manager.status();
    assert_eq!((status.turns_held, status.turns_waiting), (0, 0));
    assert_eq!(status.shutdown.unwrap().done, 0);
    rig.run();
    assert_eq!(rig.report.clone().unwrap().removed.len(), 6);
    rig.assert_clean();
}

#[test]
fn a_panic_in_one_stop_loses_only_that_device() {
    let mut rig = live(settings(), 4);
    rig.script.insert("stop", vec![Reply::Panic]);
    rig.tell(Event::Shutdown);
    rig.run();
    let report = rig.report.clone().unwrap();
    assert_eq!(report.removed.len(), 3);
    assert_eq!(report.failed[0].first.fault.kind, FaultKind::Panicked);
    rig.assert_clean();
}

#[test]
fn hurrying_abandons_running_drains_and_skips_later_ones() {
    let mut rig = live(settings(), 4);
    rig.tell(Event::Shutdown);
    while rig.order("d0", "drain").is_none() || rig.order("d1", "drain").is_none() {
        let other = rig.orders.iter().find(|o| o.step.name() != "drain");
        match other.map(|order| order.ticket) {
            Some(ticket) => rig.answer(ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    rig.tell(Event::Hurry);
    rig.tell(Event::Hurry);
    assert!(rig.order("d0", "abandon").is_some());
    assert!(rig.order("d1", "abandon").is_some());
    rig.run();
    let drains = rig.trace.iter().filter(|s| s.ends_with("drain")).count();
    assert_eq!(drains, 2);
    assert_eq!(rig.report.clone().unwrap().removed.len(), 4);
    rig.assert_clean();
}

#[test]
fn devices_that_are_being_made_are_refused_because_of_the_shutdown() {
    let mut rig = live(settings(), 1);
    let creating = rig.create(request("new"));
    rig.tell(Event::Shutdown);
    rig.run();
    let first = &rig.failure(creating).first;
    assert_eq!(first.fault.kind, FaultKind::ShuttingDown);
    let report = rig.report.clone().unwrap();
    assert_eq!(report.removed.len(), 2);
    rig.assert_clean();
}

#[test]
fn a_shutdown_does_not_wait_for_a_step_that_never_comes_back() {
    let mut rig = live(settings(), 1);
    rig.create(request("new"));
    while rig.order("new", "start").is_none() {
        match rig.orders.first() {
            Some(order) => rig.answer(order.ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    let start = rig.order("new", "start").unwrap().ticket;
    rig.answer(start, Reply::Silent);
    assert!(rig.tick());
    rig.tell(Event::Shutdown);
    rig.run();
    let report = rig.report.clone().unwrap();
    assert_eq!(report.removed, [name("d0")]);
    assert_eq!(report.failed[0].first.step.name(), "start");
    assert_eq!(report.failed[0].fate, Fate::Quarantined);
    // The next start finds it by its record.
    assert!(rig.journal.contains_key("device/000001"));
}

#[test]
fn a_quarantined_device_is_tried_once_more() {
    let mut rig = live(settings(), 1);
    rig.script
        .insert("await_gone", vec![Reply::Fail(FaultKind::DeadlineExceeded)]);
    rig.remove("d0");
    rig.run();
    rig.tell(Event::Shutdown);
    rig.run();
    assert_eq!(rig.report.clone().unwrap().removed, [name("d0")]);
    rig.assert_clean();
}

#[test]
fn nobody_tries_a_quarantined_device_again_once_the_shutdown_has_counted_it() {
    let mut rig = live(settings(), 1);
    let failed = Reply::Fail(FaultKind::DeadlineExceeded);
    rig.script.insert("await_gone", vec![failed]);
    rig.create(request("slow"));
    rig.tell(Event::Shutdown);
    // d0 ends in quarantine; the create of "slow" holds the shutdown open.
    while rig.device("d0").phase != Phase::Quarantined {
        match rig.orders.iter().find(|order| order.name == name("d0")) {
            Some(order) if order.step.name() == "await_gone" => rig.answer(order.ticket, failed),
            Some(order) => rig.answer(order.ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    let removed = rig.remove("d0");
    assert_eq!(rig.denial(removed), "quarantined");
    let all = rig.remove_all();
    assert!(rig.report.is_none());
    rig.run();
    let Ok(Answer::RemovedAll(report)) = &rig.replies[&all] else {
        panic!("{:?}", rig.replies[&all]);
    };
    assert_eq!(report.removed, [name("slow")]);
    assert_eq!(report.failed[0].name, name("d0"));
    assert_eq!(rig.report.as_ref(), Some(report));
}
