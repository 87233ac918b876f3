//! How unkind the simulated kernel is.

/// Probabilities in parts per 10,000 and delays in ticks of the simulated clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A read or write does less than it was asked for.
    pub short: u16,
    /// An operation ends with EINTR and without effect.
    pub interrupted: u16,
    /// An operation ends with EAGAIN and without effect.
    pub again: u16,
    /// An operation ends with EIO, a write perhaps with a part of its effect.
    pub io_error: u16,
    /// A write or an allocation ends with ENOSPC. (A disk that is really full says so by itself.)
    pub no_space: u16,
    /// An operation does not end until it is released.
    pub hang: u16,
    /// An operation or command takes up to `slow_ticks_max` instead of `delay_ticks_max`.
    pub slow: u16,
    /// The ring comes back without a completion.
    pub spurious_wake: u16,
    /// A read or volatile write is done at once, without the ring, when the ring is asked whether that can be.
    pub at_once: u16,
    /// The longest usual delay.
    pub delay_ticks_max: u16,
    /// The longest delay of a slow operation.
    pub slow_ticks_max: u16,
}

impl Faults {
    /// Everything succeeds at once, in order.
    pub const NONE: Self = Self {
        short: 0,
        interrupted: 0,
        again: 0,
        io_error: 0,
        no_space: 0,
        hang: 0,
        slow: 0,
        spurious_wake: 0,
        at_once: 0,
        delay_ticks_max: 0,
        slow_ticks_max: 0,
    };

    /// Delays and reordering, no failure.
    pub const REORDER: Self = Self {
        slow: 200,
        spurious_wake: 100,
        delay_ticks_max: 8,
        slow_ticks_max: 300,
        ..Self::NONE
    };

    /// What a bad day looks like.
    pub const ROUGH: Self = Self {
        short: 800,
        interrupted: 200,
        again: 200,
        io_error: 60,
        no_space: 40,
        hang: 40,
        ..Self::REORDER
    };

    /// Nearly nothing works at the first attempt.
    pub const STORM: Self = Self {
        short: 4000,
        interrupted: 3000,
        again: 3500,
        io_error: 300,
        no_space: 100,
        hang: 100,
        ..Self::REORDER
    };
}
