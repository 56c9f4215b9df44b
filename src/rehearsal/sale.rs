//! Running a planned sale from the first BUY to the last RESULT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::buyer::buy_all;
use super::collect::ask_results;
use super::history::{End, Listening, SaleHistory, UserHistory};
use super::plan::{Mode, PlanError, SalePlan};
use super::progress::{Phase, Progress};
use super::recorder::Recorder;
use super::stage::Stage;
use crate::admission::identity::{IdentityKind, Minter};
use crate::client::ClientError;
use crate::protocol::{ActivityId, ActivityState, Reply, Request, SkuId, Status};

/// How long the gateway is looked for before the sale.
const LOOK_FOR: Duration = Duration::from_secs(3);

/// Why a sale cannot start, or could not be written down.
#[derive(Debug, thiserror::Error)]
pub enum SaleError {
    /// The plan does not fit this process.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No token can be made.
    #[error("no token can be made: {0}")]
    Token(String),
    /// Nobody answers.
    #[error("no gateway answers at {addr} ({source}); start one with `rushgate serve`", source = .error)]
    NoGateway {
        /// Where.
        addr: SocketAddr,
        /// What happened.
        error: Box<ClientError>,
    },
    /// The gateway does not accept the tokens.
    #[error("the gateway does not let these clients in: {0}; use the secret and the audience of the gateway")]
    NotLetIn(Box<ClientError>),
    /// The activity or SKU does not exist or does not sell.
    #[error("{0}")]
    NotOnSale(String),
    /// The histogram could not be made.
    #[error("latencies cannot be recorded: {0}")]
    Recorder(#[from] hdrhistogram::CreationError),
}

/// Lets every user of the plan buy and asks for the results; what all of them were told.
pub async fn run_sale(
    plan: SalePlan,
    minter: Arc<Minter>,
    progress: Arc<dyn Progress>,
) -> Result<SaleHistory, SaleError> {
    Selling::start(plan, minter, progress).await?.finish().await
}

/// A sale whose users have bought, or tried to.
pub(super) struct Selling {
    stage: Arc<Stage>,
    /// By index.
    users: Vec<UserHistory>,
    duration: Duration,
    /// BUYs answered in that time.
    answered: u64,
}

impl Selling {
    /// Lets every user of the plan buy once.
    pub(super) async fn start(
        plan: SalePlan,
        minter: Arc<Minter>,
        progress: Arc<dyn Progress>,
    ) -> Result<Self, SaleError> {
        plan.prepare()?;
        minter
            .mint(IdentityKind::Service, 0, LOOK_FOR)
            .map_err(|error| SaleError::Token(error.to_string()))?;
        let users = plan.users;
        let mut stage = Stage::new(plan, Recorder::start()?, Arc::clone(&progress), minter);
        check_on_sale(&stage).await?;
        progress.begin(Phase::Buying, u64::from(users));
        stage.recorder = Arc::new(Recorder::start()?);
        let nobody = UserHistory {
            quantity: 1,
            listening: Listening::default(),
            end: End::Unreachable,
            events: Vec::new(),
        };
        let users = vec![nobody; usize::try_from(users).unwrap_or(0)];
        let stage = Arc::new(stage);
        let mut selling = Self { stage: Arc::clone(&stage), users, duration: Duration::ZERO, answered: 0 };
        selling.sell(&stage).await;
        selling.duration = stage.recorder.duration();
        selling.answered = stage.recorder.sum()?.0.answered;
        progress.end();
        Ok(selling)
    }

    async fn sell(&mut self, stage: &Arc<Stage>) {
        let (told, pushed) = Box::pin(buy_all(stage)).await;
        for (index, user) in told {
            if let Some(slot) = usize::try_from(index).ok().and_then(|index| self.users.get_mut(index)) {
                let before = std::mem::replace(slot, user);
                slot.events.splice(..0, before.events);
            }
        }
        let first_user = stage.plan.first_user;
        for (user, event) in pushed {
            let index = user.0.checked_sub(first_user).and_then(|index| usize::try_from(index).ok());
            if let Some(history) = index.and_then(|index| self.users.get_mut(index)) {
                history.events.push(event);
            }
        }
    }

    /// Lets these users come back and buy once more.
    pub(super) async fn wave(&mut self, who: Vec<u32>) {
        let stage = Arc::new(self.stage.next_wave(who));
        self.sell(&stage).await;
    }

    /// What is sold.
    pub(super) fn what(&self) -> (ActivityId, SkuId) {
        (self.stage.plan.activity, self.stage.plan.sku)
    }

    /// How it ended for a user.
    pub(super) fn end_of(&self, index: u32) -> Option<End> {
        self.users.get(usize::try_from(index).ok()?).map(|user| user.end)
    }

    /// Whether a user went away empty-handed and would come back.
    pub(super) fn is_sent_away(&self, index: u32) -> bool {
        self.end_of(index).is_some_and(End::is_sent_away)
    }

    /// All of them.
    pub(super) fn sent_away(&self) -> Vec<u32> {
        (0..self.stage.plan.users).filter(|index| self.is_sent_away(*index)).collect()
    }

    /// Asks for the results; what all users were told.
    pub(super) async fn finish(mut self) -> Result<SaleHistory, SaleError> {
        Box::pin(ask_results(&self.stage, &mut self.users)).await;
        for user in &mut self.users {
            user.events.sort_by_key(|event| event.received_ns);
        }
        let (activity, sku) = self.what();
        let (tally, latency_us) = self.stage.recorder.sum()?;
        Ok(SaleHistory {
            activity,
            sku,
            first_user: self.stage.plan.first_user,
            users: self.users,
            tally,
            buys: self.stage.recorder.buys(),
            latency_us,
            duration: self.duration,
            answered: self.answered,
        })
    }
}

/// Before thousands of users try: is there a gateway, does it let them in, does it sell this?
async fn check_on_sale(stage: &Stage) -> Result<(), SaleError> {
    let part = stage.plan.part(0);
    let user = (stage.plan.mode == Mode::App).then_some(part.user);
    let client = stage.client(user, mpsc::channel(1).0);
    let on_behalf = Stage::on_behalf(&part);
    let on_behalf = (stage.plan.mode == Mode::Service).then_some(&on_behalf);
    let until = Instant::now().checked_add(LOOK_FOR).unwrap_or_else(Instant::now);
    let (activity, sku) = (stage.plan.activity, stage.plan.sku);
    let answer = client.ask(&Request::Activity { activity }, on_behalf, until).await;
    client.close().await;
    let answer = answer.map_err(|error| match error {
        ClientError::Refused { .. } => SaleError::NotLetIn(Box::new(error)),
        error => SaleError::NoGateway {
            addr: stage.plan.addrs.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))),
            error: Box::new(error),
        },
    })?;
    let Reply::Activity { info, skus } = answer.reply else {
        return Err(SaleError::NotOnSale(refusal(activity, answer.status)));
    };
    if !skus.iter().any(|known| known.sku == sku) {
        return Err(SaleError::NotOnSale(no_such_sku(activity, sku)));
    }
    let opens_in_ms = info.opens_at_ms.saturating_sub(info.server_time_ms);
    match info.state {
        ActivityState::Ended => Err(SaleError::NotOnSale(format!(
            "activity {activity} has ended or its entry is closed; open it with `rushgate activity open {activity}` or create another"
        ))),
        ActivityState::Upcoming if u128::from(opens_in_ms) > stage.plan.patience.as_millis() => {
            Err(SaleError::NotOnSale(format!(
                "activity {activity} opens in {} s, later than the users' patience; wait, or give them more patience",
                opens_in_ms / 1000
            )))
        }
        ActivityState::Upcoming | ActivityState::Open => Ok(()),
    }
}

fn refusal(activity: ActivityId, status: u16) -> String {
    if status == Status::UnknownActivity.code() {
        return format!(
            "the gateway knows no activity {activity}; create one with `rushgate activity create`, or name another"
        );
    }
    let name = Status::from_wire(status).map_or("an unknown status", Status::name);
    format!("the gateway answers {name} ({status:#06x}) when asked for activity {activity}")
}

fn no_such_sku(activity: ActivityId, sku: SkuId) -> String {
    format!("activity {activity} has no SKU {sku}; see `rushgate activity show {activity}`")
}
