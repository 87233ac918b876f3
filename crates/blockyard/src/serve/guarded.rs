//! A future whose panic becomes a value, so that a step's panic is that step's failure and needs no task of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs `work`; a panic ends it with the panic's message.
pub(crate) fn guarded<F: Future>(work: F) -> Guarded<F> {
    Guarded(Box::pin(work))
}

/// See [`guarded`].
#[derive(Debug)]
pub(crate) struct Guarded<F>(Pin<Box<F>>);

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // What the panic leaves behind is dropped with the future and not looked at again.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(message_of(panic.as_ref()))),
        }
    }
}

/// What a panic said.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_passes_and_a_panic_becomes_its_message() {
        assert_eq!(guarded(async { 7 }).await, Ok(7));
        let late = guarded(async {
            tokio::task::yield_now().await;
            panic!("on {}", "purpose")
        });
        let ended: Result<(), String> = late.await;
        assert_eq!(ended, Err("on purpose".to_owned()));
        let odd: Result<(), String> = guarded(async { std::panic::panic_any(3) }).await;
        assert!(odd.unwrap_err().contains("without a message"));
    }
}
