//! The way in: the order of steps, idempotence, and how each failure is unwound.

use manager::{Answer, Fate, FaultKind, Phase};

use crate::rig::{Reply, Rig, params, request, settings};

const WAY_IN: [&str; 8] = [
    "a.open",
    "record_creating",
    "a.add",
    "record_added",
    "a.attach",
    "a.start",
    "a.publish",
    "record_live",
];

#[test]
fn a_device_takes_every_step_in_order_and_is_answered_when_live() {
    let mut rig = Rig::new(settings());
    let reply = rig.create(request("a"));
    assert_eq!(rig.device("a").phase, Phase::Creating);
    assert!(rig.replies.is_empty());
    rig.run();
    assert_eq!(rig.trace, WAY_IN);
    let Ok(Answer::Created(view)) = &rig.replies[&reply] else {
        panic!("{:?}", rig.replies[&reply]);
    };
    assert_eq!(view.phase, Phase::Live);
    assert_eq!(view.step, None);
    assert_eq!(**view, rig.device("a"));
}

#[test]
fn the_same_request_again_gets_the_same_answer_before_and_after_it_is_live() {
    let mut rig = Rig::new(settings());
    let first = rig.create(request("a"));
    let joined = rig.create(request("a"));
    rig.run();
    let late = rig.create(request("a"));
    let Ok(Answer::Created(created)) = &rig.replies[&first] else {
        panic!("not created");
    };
    for id in [joined, late] {
        let Ok(Answer::Existing(existing)) = &rig.replies[&id] else {
            panic!("not existing");
        };
        assert_eq!(existing, created);
    }
    assert_eq!(rig.trace, WAY_IN);
}

#[test]
fn each_failed_step_unwinds_exactly_what_was_done() {
    let added = ["a.delete", "a.await_gone", "a.close", "record_removed"];
    let attached = [
        "a.stop",
        "a.delete",
        "a.release",
        "a.await_gone",
        "a.close",
        "record_removed",
    ];
    let started = [&["a.abandon"], &attached[..]].concat();
    let published = [&["a.unpublish", "a.drain"], &attached[..]].concat();
    let cases: [(&'static str, &[&str]); 8] = [
        ("open", &[]),
        ("record_creating", &["a.close"]),
        ("add", &["a.close", "record_removed"]),
        ("record_added", &added),
        ("attach", &attached),
        ("start", &started),
        ("publish", &published),
        ("record_live", &published),
    ];
    for (index, (step, way_out)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(settings());
        rig.script.insert(step, vec![Reply::Fail(FaultKind::Io)]);
        let first = rig.create(request("a"));
        let joined = rig.create(request("a"));
        rig.run();
        let expected: Vec<_> = WAY_IN[..=index].iter().chain(way_out).copied().collect();
        assert_eq!(rig.trace, expected, "{step}");
        for id in [first, joined] {
            let failure = rig.failure(id);
            assert_eq!(failure.first.step.name(), step);
            assert_eq!(failure.fate, Fate::Gone);
            assert!(failure.others.is_empty());
        }
        rig.assert_clean();
        // The name is free again.
        let again = rig.create(request("a"));
        rig.run();
        assert!(rig.replies[&again].is_ok(), "{step}");
    }
}

#[test]
fn the_first_error_is_reported_with_the_clean_up_failures_beside_it() {
    let mut rig = Rig::new(settings());
    rig.script.insert("start", vec![Reply::Panic]);
    rig.script
        .insert("release", vec![Reply::Fail(FaultKind::Io)]);
    let reply = rig.create(request("a"));
    rig.run();
    let failure = rig.failure(reply);
    assert_eq!(failure.first.step.name(), "start");
    assert_eq!(failure.first.fault.kind, FaultKind::Panicked);
    let others: Vec<_> = failure
        .others
        .iter()
        .map(|other| other.step.name())
        .collect();
    assert_eq!(others, ["release"]);
    assert_eq!(failure.fate, Fate::Gone);
    rig.assert_clean();
}

#[test]
fn an_add_that_left_a_device_is_undone_whether_it_said_so_or_not() {
    let cases = [
        (Reply::FailLeaving, false),
        (Reply::FailHiding(FaultKind::DeadlineExceeded), true),
        (Reply::FailHiding(FaultKind::Stuck), true),
        (Reply::Panic, true),
        // Nothing was left: the search finds nothing.
        (Reply::Fail(FaultKind::DeadlineExceeded), true),
    ];
    for (answer, is_searched) in cases {
        let mut rig = Rig::new(settings());
        rig.script.insert("add", vec![answer]);
        let reply = rig.create(request("a"));
        rig.run();
        assert_eq!(rig.trace.contains(&"a.find".into()), is_searched);
        assert_eq!(rig.failure(reply).first.step.name(), "add");
        rig.assert_clean();
    }
}

#[test]
fn a_silent_step_is_answered_at_its_deadline_and_undone_when_it_comes_back() {
    for step in ["open", "add", "attach", "start", "publish"] {
        for late in [Reply::Done, Reply::Fail(FaultKind::Io), Reply::Panic] {
            let mut rig = Rig::new(settings());
            let reply = rig.create(request("a"));
            while rig.order("a", step).is_none() {
                match rig.orders.first() {
                    Some(order) => rig.answer(order.ticket, Reply::Done),
                    None => rig.answer_write(Reply::Done),
                }
            }
            assert!(rig.tick());
            let failure = rig.failure(reply);
            assert_eq!(failure.first.step.name(), step);
            assert_eq!(failure.first.fault.kind, FaultKind::DeadlineExceeded);
            assert_eq!(failure.fate, Fate::Quarantined);
            assert_eq!(rig.device("a").phase, Phase::Quarantined);
            let denied = rig.remove("a");
            assert_eq!(rig.denial(denied), "unanswered");

            let ticket = rig.order("a", step).unwrap().ticket;
            rig.answer(ticket, late);
            rig.run();
            rig.assert_clean();
        }
    }
}

#[test]
fn a_silent_journal_ends_a_create_and_its_late_write_is_removed() {
    for step in ["record_creating", "record_added", "record_live"] {
        let mut rig = Rig::new(settings());
        let reply = rig.create(request("a"));
        while rig.trace.last().unwrap() != step {
            match rig.orders.first() {
                Some(order) => rig.answer(order.ticket, Reply::Done),
                None => rig.answer_write(Reply::Done),
            }
        }
        assert!(rig.tick());
        // From here on everything answers, the overdue write first: it becomes durable after all.
        rig.run();
        assert_eq!(rig.failure(reply).first.step.name(), step);
        assert_eq!(rig.manager.status().late_answers, 1);
        rig.assert_clean();
    }
}

#[test]
fn serials_are_journaled_and_never_repeat() {
    let mut rig = Rig::new(settings());
    for _ in 0..3 {
        rig.create(request("a"));
        rig.run();
        rig.remove("a");
        rig.run();
    }
    let records = rig
        .journal
        .iter()
        .map(|(key, value)| manager::StoredRecord {
            key: key.clone(),
            value: value.clone(),
        })
        .collect();
    let mut restarted = Rig::with_inventory(settings(), records, Vec::new());
    restarted.create(request("a"));
    restarted.run();
    assert_eq!(restarted.device("a").serial.number(), 3);
}

#[test]
fn a_request_that_differs_is_a_conflict_that_says_where() {
    let mut rig = Rig::new(settings());
    rig.create(request("a"));
    rig.run();
    let other = manager::CreateRequest::new(manager::CreateParams {
        depth: Some(7),
        ..params("a")
    });
    let reply = rig.create(other.unwrap());
    assert_eq!(rig.denial(reply), "name_taken");
    let text = rig.replies[&reply].as_ref().unwrap_err().to_string();
    assert!(
        text.contains("it has depth 64, you asked for 7; "),
        "{text}"
    );
}
