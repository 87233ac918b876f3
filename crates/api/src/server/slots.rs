//! The connections there are, who of them is idle, and room for the next one.
//!
//! A connection is idle unless a request of it is being served. The idlest is the one that has moved no byte for the longest
//! time; a client that sends a request right after connecting is therefore the last to go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::v1::Limit;

/// How long an evicted connection may take to go before the next one is evicted too.
const EVICTION_PATIENCE: Duration = Duration::from_millis(20);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It has not made a request yet.
    Silent,
    /// Its last request has been answered.
    Idle,
    /// A request is being served.
    Serving,
    /// It is being closed to make room.
    Evicted,
}

impl Activity {
    const fn can_make_room(self) -> bool {
        matches!(self, Self::Silent | Self::Idle)
    }
}

/// One connection as the table sees it.
#[derive(Debug)]
pub(super) struct Slot {
    id: u64,
    state: Mutex<(Activity, Instant)>,
    evicted: Notify,
}

/// A place in the table; dropping it frees the place.
pub(super) struct SlotGuard {
    pub(super) slot: Arc<Slot>,
    slots: Arc<Slots>,
    _place: OwnedSemaphorePermit,
}

/// Marks a request in progress; dropping it makes the connection idle again.
pub(super) struct Serving(Arc<Slot>);

/// The table.
#[derive(Debug)]
pub(super) struct Slots {
    max: usize,
    places: Arc<Semaphore>,
    table: Mutex<(u64, HashMap<u64, Arc<Slot>>)>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, (Activity, Instant)> {
        // Nothing in here can panic while the lock is held; a poisoned lock is still a right one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes have moved.
    pub(super) fn on_bytes(&self) {
        self.state().1 = Instant::now();
    }

    /// A request begins, or `None` if the connection is being closed to make room.
    pub(super) fn try_serve(self: &Arc<Self>) -> Option<Serving> {
        let mut state = self.state();
        if state.0 == Activity::Evicted {
            return None;
        }
        *state = (Activity::Serving, Instant::now());
        Some(Serving(Arc::clone(self)))
    }

    /// What it is doing now.
    pub(super) fn activity(&self) -> Activity {
        self.state().0
    }

    /// Resolves when the connection has to make room.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        *self.0.state() = (Activity::Idle, Instant::now());
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.table().1.remove(&self.slot.id);
    }
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            places: Arc::new(Semaphore::new(max)),
            table: Mutex::new((0, HashMap::new())),
        }
    }

    fn table(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<Slot>>)> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; evicts idle ones until there is one.
    pub(super) async fn claim(self: &Arc<Self>) -> SlotGuard {
        loop {
            // Tried first, because a timer takes a millisecond even to find a place that is free.
            let taken = match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => return self.insert(place),
                Err(_) => {
                    self.evict_idlest();
                    let place = Arc::clone(&self.places).acquire_owned();
                    tokio::time::timeout(EVICTION_PATIENCE, place).await
                }
            };
            // The semaphore is never closed, so a place that was taken is a place.
            if let Ok(Ok(place)) = taken {
                return self.insert(place);
            }
        }
    }

    fn insert(self: &Arc<Self>, place: OwnedSemaphorePermit) -> SlotGuard {
        let mut table = self.table();
        table.0 += 1;
        let slot = Arc::new(Slot {
            id: table.0,
            state: Mutex::new((Activity::Silent, Instant::now())),
            evicted: Notify::new(),
        });
        table.1.insert(slot.id, Arc::clone(&slot));
        SlotGuard {
            slot,
            slots: Arc::clone(self),
            _place: place,
        }
    }

    /// Closes the connection that was idle longest. `false` if none is idle.
    pub(super) fn evict_idlest(&self) -> bool {
        let table = self.table();
        let idlest = table
            .1
            .values()
            .filter_map(|slot| {
                let (activity, since) = *slot.state();
                activity.can_make_room().then_some((since, slot))
            })
            .min_by_key(|(since, slot)| (*since, slot.id));
        let Some((_, slot)) = idlest else {
            return false;
        };
        let mut state = slot.state();
        // Between the two looks a request may have begun.
        if !state.0.can_make_room() {
            return false;
        }
        state.0 = Activity::Evicted;
        slot.evicted.notify_one();
        true
    }

    /// The limit and its use.
    pub(super) fn limit(&self) -> Limit {
        let in_use = self.max.saturating_sub(self.places.available_permits());
        Limit {
            name: "connections".to_owned(),
            in_use: u64::try_from(in_use).unwrap_or(u64::MAX),
            limit: u64::try_from(self.max).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_idlest_makes_room_and_a_serving_one_never_does() {
        let slots = Arc::new(Slots::new(2));
        let first = slots.claim().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = slots.claim().await;
        let serving = first.slot.try_serve().unwrap();
        assert!(slots.evict_idlest());
        second.slot.evicted().await;
        assert!(second.slot.try_serve().is_none());
        assert!(
            !slots.evict_idlest(),
            "the first is serving, the second is gone already"
        );
        drop(serving);
        assert!(slots.evict_idlest());
        first.slot.evicted().await;
        assert_eq!(slots.limit().in_use, 2);
        drop((first, second));
        assert_eq!(slots.limit().in_use, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_keep_a_connection_from_being_the_idlest() {
        let slots = Arc::new(Slots::new(2));
        let first = slots.claim().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = slots.claim().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        first.slot.on_bytes();
        assert!(slots.evict_idlest());
        second.slot.evicted().await;
        assert!(first.slot.try_serve().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_waits_while_everything_serves() {
        let slots = Arc::new(Slots::new(1));
        let first = slots.claim().await;
        let serving = first.slot.try_serve().unwrap();
        assert!(
            tokio::time::timeout(Duration::from_secs(5), slots.claim())
                .await
                .is_err()
        );
        drop((serving, first));
        slots.claim().await;
    }
}
