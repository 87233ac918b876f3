//! The one task that owns the manager: events in, effects out, one after another.
//!
//! Steps run as tasks of their own and come back as events, so a slow device delays nobody here. A step that panics
//! comes back as an event too: it is that device's failure and no other's.

use std::collections::HashMap;
use std::sync::Arc;

use manager::{
    Answer, CreateRequest, DeviceName, DeviceView, Effect, Event, Fault, KernelDevice, Manager,
    Output, Refusal, ReplyId, Report, StepOrder, Ticket,
};
use tokio::sync::{mpsc, oneshot};

use super::clock;
use super::guarded::guarded;
use super::journal::Journal;
use super::steps::Driver;

/// Orders handled before effects are carried out: lets journal writes of many requests share a transaction.
const BATCH_MAX: usize = 64;

type Reply = oneshot::Sender<Result<Answer, Refusal>>;

enum Order {
    Event(Event),
    Create(CreateRequest, Reply),
    Remove(DeviceName, Reply),
    RemoveStray(KernelDevice, Reply),
    RemoveAll(Reply),
    Query(Box<dyn FnOnce(&Manager) + Send>),
}

/// The way to the task; cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    orders: mpsc::UnboundedSender<Order>,
}

/// The task has ended: the daemon is going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is going down; ask again when it runs again")]
pub(crate) struct EngineEnded;

impl Engine {
    /// Starts the task. The second value tells, once, how the shutdown went.
    pub(crate) fn start(
        manager: Manager,
        driver: Arc<Driver>,
        journal: Journal,
    ) -> (Self, oneshot::Receiver<Report>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (finished, report) = oneshot::channel();
        let task = EngineTask {
            manager,
            driver,
            journal,
            orders: orders.clone(),
            replies: HashMap::new(),
            next_reply: 0,
            finished: Some(finished),
        };
        tokio::spawn(task.run(receiver));
        (Self { orders }, report)
    }

    /// Creates a device, or finds it.
    pub(crate) async fn create(
        &self,
        request: CreateRequest,
    ) -> Result<Result<Answer, Refusal>, EngineEnded> {
        self.ask(|reply| Order::Create(request, reply)).await
    }

    /// Removes a device.
    pub(crate) async fn remove(
        &self,
        name: DeviceName,
    ) -> Result<Result<Answer, Refusal>, EngineEnded> {
        self.ask(|reply| Order::Remove(name, reply)).await
    }

    /// Removes a device of another installation, as the kernel lists it now.
    pub(crate) async fn remove_stray(
        &self,
        found: KernelDevice,
    ) -> Result<Result<Answer, Refusal>, EngineEnded> {
        self.ask(|reply| Order::RemoveStray(found, reply)).await
    }

    /// Removes every device.
    pub(crate) async fn remove_all(&self) -> Result<Result<Answer, Refusal>, EngineEnded> {
        self.ask(Order::RemoveAll).await
    }

    /// Begins the shutdown, or hurries one that has begun.
    pub(crate) fn signal(&self, event: Event) {
        // A task that has ended has no devices left to stop.
        let _ = self.orders.send(Order::Event(event));
    }

    /// Looks at the manager.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Manager) -> T + Send + 'static,
    ) -> Result<T, EngineEnded> {
        let (sender, receiver) = oneshot::channel();
        // The asker may have gone away meanwhile.
        let query = Box::new(move |manager: &Manager| drop(sender.send(look(manager))));
        self.orders
            .send(Order::Query(query))
            .map_err(|_| EngineEnded)?;
        receiver.await.map_err(|_| EngineEnded)
    }

    async fn ask(
        &self,
        order: impl FnOnce(Reply) -> Order,
    ) -> Result<Result<Answer, Refusal>, EngineEnded> {
        let (sender, receiver) = oneshot::channel();
        self.orders.send(order(sender)).map_err(|_| EngineEnded)?;
        receiver.await.map_err(|_| EngineEnded)
    }
}

struct EngineTask {
    manager: Manager,
    driver: Arc<Driver>,
    journal: Journal,
    orders: mpsc::UnboundedSender<Order>,
    replies: HashMap<ReplyId, Reply>,
    next_reply: u64,
    finished: Option<oneshot::Sender<Report>>,
}

impl EngineTask {
    async fn run(mut self, mut receiver: mpsc::UnboundedReceiver<Order>) {
        loop {
            self.carry_out();
            let alarm = self.manager.poll_deadline();
            let order = match alarm {
                None => receiver.recv().await,
                Some(at) => {
                    let waited = tokio::time::timeout_at(at.into(), receiver.recv()).await;
                    waited.unwrap_or(Some(Order::Event(Event::Tick)))
                }
            };
            let Some(order) = order else { return };
            self.handle(order);
            for _ in 0..BATCH_MAX {
                let Ok(order) = receiver.try_recv() else {
                    break;
                };
                self.handle(order);
            }
        }
    }

    fn handle(&mut self, order: Order) {
        let event = match order {
            Order::Event(event) => event,
            Order::Create(request, reply) => Event::Create {
                reply: self.expect(reply),
                request,
            },
            Order::Remove(name, reply) => Event::Remove {
                reply: self.expect(reply),
                name,
            },
            Order::RemoveStray(found, reply) => Event::RemoveStray {
                reply: self.expect(reply),
                found,
            },
            Order::RemoveAll(reply) => Event::RemoveAll {
                reply: self.expect(reply),
            },
            Order::Query(query) => return query(&self.manager),
        };
        self.manager.handle_event(clock::now(), event);
    }

    fn expect(&mut self, reply: Reply) -> ReplyId {
        let id = ReplyId(self.next_reply);
        self.next_reply += 1;
        self.replies.insert(id, reply);
        id
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.manager.poll_effect() {
            match effect {
                Effect::Step(order) => self.run_step(*order),
                Effect::Journal { ticket, changes } => {
                    let orders = self.orders.clone();
                    // Nobody listens any more only when the process ends.
                    let done = move |result| {
                        drop(orders.send(Order::Event(Event::Journaled { ticket, result })))
                    };
                    self.journal.write(changes, Box::new(done));
                }
                Effect::Reply { id, result } => {
                    if let Ok(Answer::Created(view)) = &result {
                        log_live(view);
                    }
                    if let Some(reply) = self.replies.remove(&id) {
                        // A client that went away does not hear the answer.
                        let _ = reply.send(result);
                    }
                }
                Effect::ShutdownDone { report } => {
                    if let Some(finished) = self.finished.take() {
                        // The daemon waits for this until its end.
                        let _ = finished.send(report);
                    }
                }
            }
        }
    }

    fn run_step(&self, order: StepOrder) {
        let (driver, orders) = (Arc::clone(&self.driver), self.orders.clone());
        let ticket = order.ticket;
        let (name, step) = (order.name.clone(), order.step);
        tracing::debug!(device = %name, step = %step, "step begins");
        tokio::spawn(async move {
            let event = match guarded(driver.run(&order)).await {
                Ok(result) => stepped(ticket, result, &name, step),
                Err(message) => {
                    tracing::error!(device = %name, step = %step, err = %message, "a step panicked; the device failed, the others go on");
                    Event::Panicked { ticket, message }
                }
            };
            // Nobody listens any more only when the process ends.
            let _ = orders.send(Order::Event(event));
        });
    }
}

fn log_live(view: &DeviceView) {
    let id = view.id.map(|id| id.0);
    let node = view.id.map(ublk::block_node);
    let path = node
        .as_deref()
        .map(|node| tracing::field::display(node.display()));
    tracing::info!(device = %view.name, id, path, "live");
}

fn stepped(
    ticket: Ticket,
    result: Result<Output, Fault>,
    name: &DeviceName,
    step: manager::Step,
) -> Event {
    // What the user asked for and cannot have is told when the creation has ended.
    if let Err(fault) = &result
        && !fault.kind.is_refusal_of(step)
    {
        tracing::error!(device = %name, step = %step, err = %fault, "step failed");
    }
    Event::Stepped { ticket, result }
}
