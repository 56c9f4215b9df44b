//! What the writer task is asked, and where it leaves its answers. Pure data.

use tokio::sync::oneshot;

use super::risk;
use crate::payment::{Notice, Payment};
use crate::protocol::{OrderNumber, UserId};
use crate::stock::calls::{Call, Mark, Reply};
use crate::store::payments::{Closings, Overdue, Taken, Unparked};
use crate::store::switches::NewSwitch;
use crate::store::{Registration, StoreError};

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the task is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    Call(CallJob),
    Register(Answer<Registration>),
    DriveLoads(Answer<u64>),
    SetSwitch {
        new: NewSwitch,
        answer: Answer<u64>,
    },
    ChangeRisk {
        step: risk::Step,
        answer: Answer<risk::Done>,
    },
    Life(LifeJob),
    /// Finish what is queued, close the database, release the folder.
    Close,
}

#[derive(Debug)]
pub(super) struct CallJob {
    pub(super) call: Call,
    pub(super) answer: Answer<Reply>,
}

/// What it is asked about the life of orders after their purchase.
#[derive(Debug)]
pub(super) enum LifeJob {
    /// A payment; when it was signed and how far from now that may be, where it was.
    Pay { payment: Payment, signed_within: Option<(u64, u64)>, answer: Answer<Notice> },
    /// A parked payment is to be judged again.
    JudgeParked { id: String, park_ms: u64, answer: Answer<Option<Unparked>> },
    /// Overdue orders are to be asked about.
    TakeOverdue { how: Overdue, answer: Answer<Taken> },
    /// Overdue orders are to be closed.
    Close { orders: Vec<OrderNumber>, answer: Answer<(Closings, Option<u64>)> },
    /// An order is to be closed because somebody asks for it.
    CloseAsked {
        order: OrderNumber,
        of: Option<UserId>,
        reason: &'static str,
        answer: Answer<Option<(UserId, Mark)>>,
    },
}
