//! A client that does nothing wrong, while others do: it asks one thing after the other and remembers how long it
//! had to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rushgate::protocol::Status;

use super::wire::{Client, buy};

/// Far below every deadline of the gateway, and far above what a machine that runs many tests at once adds.
const WAIT_MAX: Duration = Duration::from_secs(4);

pub(crate) struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Waits>,
}

/// What it met.
#[derive(Default)]
struct Waits {
    answers: u64,
    longest: Duration,
}

impl Bystander {
    /// A PING and a BUY by turns, from now on. The BUY is of an article that does not exist: it goes down the
    /// ladder and takes nothing.
    pub(crate) fn watch(mut client: Client, sale: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut waits = Waits::default();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                client.ping();
                assert_eq!(client.ask(&buy(sale, u16::MAX, 1)).status, Status::UnknownSku);
                waits.longest = waits.longest.max(began.elapsed());
                waits.answers += 2;
                // Leaves the processor to those whom the test is about.
                thread::park_timeout(Duration::from_millis(2));
            }
            waits
        });
        Self { stop, thread }
    }

    /// It was answered all the time, and never late.
    #[track_caller]
    pub(crate) fn unharmed(self) {
        self.stop.store(true, Ordering::Relaxed);
        let waits = self.thread.join().expect("a bystander was not answered as he should be");
        assert!(waits.answers > 0, "nobody watched");
        assert!(waits.longest < WAIT_MAX, "a bystander waited {:?}", waits.longest);
    }
}
