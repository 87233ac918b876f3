//! What control does with a device between attach and release, in every order that is legal.

use std::collections::VecDeque;

use fastrand::Rng;

/// A step of control at the end of a device's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask the shard to drain the device.
    Drain,
    /// Ask the shard to abandon it.
    Abandon,
    /// STOP_DEV.
    Stop,
    /// Ask the shard to release it.
    Release,
}

/// What has been done with a device and what is known of it.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// The shard has said that it serves the device.
    pub(crate) is_attached: bool,
    pub(crate) is_drain_sent: bool,
    pub(crate) is_drained: bool,
    pub(crate) is_abandon_sent: bool,
    pub(crate) is_abandoned: bool,
    pub(crate) is_stopped: bool,
    pub(crate) is_release_sent: bool,
    /// The shard has said that the target panicked.
    pub(crate) is_poisoned: bool,
    /// Steps until the end begins.
    pub(crate) steps_left: u32,
    end: Option<VecDeque<Act>>,
}

impl Life {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            steps_left: rng.u32(0..300),
            ..Self::default()
        }
    }

    /// Begins the end, if it has not begun.
    pub(crate) fn begin_end(&mut self, rng: &mut Rng) {
        if self.end.is_some() {
            return;
        }
        let mut end = VecDeque::from([Act::Stop, Act::Release]);
        if rng.u8(0..5) == 0 {
            // The shard must wait for the aborts then.
            end.swap(0, 1);
        }
        match rng.u8(0..10) {
            0..6 => end.push_front(Act::Drain),
            6 | 7 => end.insert(rng.usize(0..=end.len()), Act::Drain),
            _ => {}
        }
        if rng.u8(0..4) == 0 {
            end.insert(rng.usize(0..=end.len()), Act::Abandon);
        }
        self.end = Some(end);
    }

    /// The next act, if its time has come.
    pub(crate) fn next_act(&mut self, rng: &mut Rng) -> Option<Act> {
        let end = self.end.as_mut()?;
        let is_careful =
            self.is_drain_sent && !self.is_drained && !self.is_abandon_sent && rng.u8(0..16) > 0;
        if is_careful || rng.u8(0..3) > 0 {
            return None;
        }
        let act = end.pop_front()?;
        match act {
            Act::Drain => self.is_drain_sent = true,
            Act::Abandon => self.is_abandon_sent = true,
            Act::Stop => self.is_stopped = true,
            Act::Release => self.is_release_sent = true,
        }
        Some(act)
    }

    /// Adds an abandon to an end that does not come because something hangs.
    pub(crate) fn give_up(&mut self) {
        if !self.is_abandon_sent
            && let Some(end) = &mut self.end
            && !end.contains(&Act::Abandon)
        {
            end.push_front(Act::Abandon);
        }
    }

    pub(crate) const fn is_ending(&self) -> bool {
        self.end.is_some()
    }
}
