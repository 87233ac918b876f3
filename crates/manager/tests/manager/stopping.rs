//! The way out: order by kernel, deadlines, escalation, quarantine, and who waits for whom.

use manager::{Answer, Event, Fate, FaultKind, Phase, Settings, TeardownOrder};

use crate::rig::{Reply, Rig, name, request, settings};

const FAILED: Reply = Reply::Fail(FaultKind::Io);

fn live(settings: Settings, names: &[&str]) -> Rig {
    let mut rig = Rig::new(settings);
    for name in names {
        rig.create(request(name));
    }
    rig.run();
    rig.trace.clear();
    rig
}

#[test]
fn the_order_of_the_way_out_is_that_of_the_kernel() {
    let cases = [
        (
            TeardownOrder::CloseThenDelete,
            ["a.stop", "a.release", "a.delete"],
        ),
        (
            TeardownOrder::DeleteThenClose,
            ["a.stop", "a.delete", "a.release"],
        ),
    ];
    for (teardown_order, middle) in cases {
        let settings = Settings {
            teardown_order,
            ..settings()
        };
        let mut rig = live(settings, &["a"]);
        let reply = rig.remove("a");
        rig.run();
        let mut expected = vec!["record_stopping", "a.unpublish", "a.drain"];
        expected.extend(middle);
        expected.extend(["a.await_gone", "a.close", "record_removed"]);
        assert_eq!(rig.trace, expected);
        assert_eq!(rig.replies[&reply], Ok(Answer::Removed { name: name("a") }));
        rig.assert_clean();
    }
}

/// A step, how often it fails, what is taken right afterwards, and where the device ends.
type Case = (&'static str, usize, &'static [&'static str], Fate);

const CASES: [Case; 11] = [
    ("record_stopping", 1, &["a.unpublish"], Fate::Gone),
    ("unpublish", 1, &["a.drain"], Fate::Gone),
    ("drain", 1, &["a.abandon", "a.stop"], Fate::Gone),
    (
        "stop",
        1,
        &["a.release", "a.stop", "a.delete", "a.await_gone"],
        Fate::Gone,
    ),
    ("stop", 2, &["a.release", "a.stop"], Fate::Quarantined),
    (
        "delete",
        1,
        &["a.release", "a.delete", "a.await_gone"],
        Fate::Gone,
    ),
    ("delete", 2, &["a.release", "a.delete"], Fate::Quarantined),
    (
        "release",
        1,
        &["a.await_gone", "a.close", "record_removed"],
        Fate::Gone,
    ),
    ("await_gone", 1, &[], Fate::Quarantined),
    ("close", 1, &["record_removed"], Fate::Gone),
    ("record_removed", 1, &[], Fate::Gone),
];

#[test]
fn each_failure_is_reported_and_answered_by_the_next_means() {
    for case in CASES {
        for (reply, kind) in [
            (FAILED, None),
            (Reply::Panic, Some(FaultKind::Panicked)),
            (Reply::Silent, Some(FaultKind::DeadlineExceeded)),
        ] {
            check_case(case, reply, kind);
        }
    }
}

fn check_case((step, times, following, fate): Case, how: Reply, kind: Option<FaultKind>) {
    let mut rig = live(settings(), &["a"]);
    rig.script.insert(step, vec![how; times]);
    let reply = rig.remove("a");
    rig.run();
    let is_it = |taken: &String| taken == step || *taken == format!("a.{step}");
    let failed_at = rig.trace.iter().position(is_it).unwrap();
    let taken: Vec<_> = rig.trace[failed_at + 1..]
        .iter()
        .map(String::as_str)
        .collect();
    assert!(taken.starts_with(following), "{step}: {taken:?}");
    let failure = rig.failure(reply);
    assert_eq!(failure.fate, fate, "{step}");
    assert_eq!(failure.first.step.name(), step);
    assert_eq!(failure.others.len() + 1, times);
    // The journal's failures are all of one kind, whatever the rig is told.
    if !step.starts_with("record") || how == Reply::Silent {
        assert_eq!(failure.first.fault.kind, kind.unwrap_or(FaultKind::Io));
    }
    match fate {
        Fate::Gone => assert!(rig.kernel.is_empty()),
        Fate::Quarantined => {
            assert_eq!(taken, following);
            assert_eq!(rig.device("a").phase, Phase::Quarantined);
            assert_eq!(rig.device("a").step.unwrap().name(), step);
            let denied = rig.create(request("a"));
            assert_eq!(rig.denial(denied), "quarantined");
            // Removing it again is a new try.
            let again = rig.remove("a");
            rig.run();
            assert!(rig.replies[&again].is_ok());
            rig.assert_clean();
        }
    }
}

#[test]
fn a_record_that_could_not_be_removed_goes_with_the_next_write() {
    let mut rig = live(settings(), &["a"]);
    rig.script.insert("record_removed", vec![FAILED]);
    rig.remove("a");
    rig.run();
    assert!(rig.journal.contains_key("device/000000"));
    assert_eq!(rig.manager.status().records_owed, 1);
    rig.create(request("b"));
    rig.run();
    assert!(!rig.journal.contains_key("device/000000"));
    assert_eq!(rig.manager.status().records_owed, 0);
}

#[test]
fn a_drain_is_abandoned_at_its_deadline_and_its_late_answer_moves_nothing() {
    let mut rig = live(settings(), &["a"]);
    let reply = rig.remove("a");
    rig.answer_write(Reply::Done);
    let unpublish = rig.order("a", "unpublish").unwrap().ticket;
    rig.answer(unpublish, Reply::Done);
    let began = rig.now;
    let drain = rig.order("a", "drain").unwrap();
    assert!(rig.tick());
    assert_eq!(rig.now, began + settings().deadlines.drain);
    assert_eq!(rig.now, drain.deadline);
    assert!(rig.order("a", "abandon").is_some());
    rig.answer(drain.ticket, Reply::Done);
    assert_eq!(rig.manager.status().late_answers, 1);
    assert!(rig.order("a", "abandon").is_some());
    assert!(rig.order("a", "stop").is_none());
    rig.run();
    let failure = rig.failure(reply);
    assert_eq!(failure.fate, Fate::Gone);
    assert_eq!(failure.first.step.name(), "drain");
    assert_eq!(failure.first.elapsed, settings().deadlines.drain);
    rig.assert_clean();
}

#[test]
fn a_quarantined_device_goes_on_when_the_kernel_answers_late() {
    let mut rig = live(settings(), &["a"]);
    let reply = rig.remove("a");
    while rig.order("a", "await_gone").is_none() {
        match rig.orders.first() {
            Some(order) => rig.answer(order.ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    assert!(rig.tick());
    assert_eq!(rig.failure(reply).fate, Fate::Quarantined);
    let late = rig.order("a", "await_gone").unwrap().ticket;
    rig.answer(late, Reply::Done);
    rig.run();
    rig.assert_clean();
}

#[test]
fn a_second_remove_shares_the_outcome() {
    let mut rig = live(settings(), &["a"]);
    rig.script.insert("stop", vec![FAILED]);
    let first = rig.remove("a");
    let second = rig.remove("a");
    rig.run();
    assert_eq!(rig.replies[&first], rig.replies[&second]);
    assert_eq!(rig.failure(first).first.step.name(), "stop");
}

#[test]
fn removing_one_device_never_waits_for_another() {
    let settings = Settings {
        stop_concurrency: 1,
        ..settings()
    };
    let mut rig = live(settings, &["a", "b", "c"]);
    rig.remove_all();
    for _ in 0..3 {
        rig.answer_write(Reply::Done);
    }
    // a has the turn and hangs; c is wanted by itself.
    assert!(rig.order("a", "unpublish").is_some());
    assert!(rig.order("c", "unpublish").is_none());
    let reply = rig.remove("c");
    assert!(rig.order("c", "unpublish").is_some());
    while !rig.replies.contains_key(&reply) {
        match rig.orders.iter().find(|order| order.name == name("c")) {
            Some(order) => rig.answer(order.ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    assert!(rig.replies[&reply].is_ok());
    assert!(rig.order("b", "unpublish").is_none());
    rig.run();
    rig.assert_clean();
}

#[test]
fn removing_a_device_that_is_being_made_cancels_it_after_each_step() {
    for steps in 0..8 {
        let mut rig = Rig::new(settings());
        let created = rig.create(request("a"));
        for _ in 0..steps {
            match rig.orders.first() {
                Some(order) => rig.answer(order.ticket, Reply::Done),
                None => rig.answer_write(Reply::Done),
            }
        }
        let removed = rig.remove("a");
        let refused = rig.create(request("a"));
        assert_eq!(rig.denial(refused), "busy");
        rig.run();
        let failure = rig.failure(created);
        assert_eq!(failure.first.fault.kind, FaultKind::Cancelled);
        assert_eq!(failure.fate, Fate::Gone);
        assert!(rig.replies[&removed].is_ok(), "{:?}", rig.replies[&removed]);
        rig.assert_clean();
    }
}

#[test]
fn remove_all_reports_each_device_and_refuses_no_creates() {
    let mut rig = live(settings(), &["a", "b", "c"]);
    // The first device to stop fails twice.
    rig.script.insert("stop", vec![FAILED, FAILED]);
    let all = rig.remove_all();
    let created = rig.create(request("d"));
    rig.run();
    let Ok(Answer::RemovedAll(report)) = &rig.replies[&all] else {
        panic!("{:?}", rig.replies[&all]);
    };
    assert_eq!(report.removed.len() + report.failed.len(), 3);
    assert!(!report.failed.is_empty());
    assert!(rig.replies[&created].is_ok());
    assert_eq!(rig.device("d").phase, Phase::Live);

    let mut empty = Rig::new(settings());
    let all = empty.remove_all();
    assert_eq!(
        empty.replies[&all],
        Ok(Answer::RemovedAll(manager::Report::default()))
    );
}

#[test]
fn duplicate_and_foreign_answers_move_nothing() {
    let mut rig = live(settings(), &["a"]);
    let ticket = manager::Ticket {
        device: rig.device("a").key,
        attempt: 1,
    };
    let before = rig.device("a");
    for event in [
        Event::Stepped {
            ticket,
            result: Ok(manager::Output::Done),
        },
        Event::Panicked {
            ticket,
            message: "late".into(),
        },
        Event::Journaled {
            ticket,
            result: Ok(()),
        },
        Event::Stepped {
            ticket: manager::Ticket {
                device: manager::DeviceKey(999),
                attempt: 1,
            },
            result: Ok(manager::Output::Done),
        },
    ] {
        rig.tell(event);
    }
    assert_eq!(rig.device("a"), before);
    assert_eq!(rig.manager.status().late_answers, 4);
}

#[test]
fn the_late_answer_of_one_step_is_not_taken_for_that_of_another() {
    let mut rig = live(settings(), &["a"]);
    rig.remove("a");
    while rig.order("a", "stop").is_none() {
        match rig.orders.first() {
            Some(order) => rig.answer(order.ticket, Reply::Done),
            None => rig.answer_write(Reply::Done),
        }
    }
    // Neither the stop nor the release that follows is answered in time.
    assert!(rig.tick());
    let release = rig.order("a", "release").unwrap().ticket;
    assert!(rig.tick());
    assert_eq!(rig.device("a").step.unwrap().name(), "stop");
    rig.answer(release, Reply::Done);
    // The device is not stopped for that, and must not be deleted.
    assert_eq!(rig.device("a").phase, Phase::Quarantined);
    let again = rig.remove("a");
    rig.run();
    assert!(rig.replies[&again].is_ok());
    rig.assert_clean();
}
