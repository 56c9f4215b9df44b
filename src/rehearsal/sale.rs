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
    plan.prepare()?;
    minter.mint(IdentityKind::Service, 0, LOOK_FOR).map_err(|error| SaleError::Token(error.to_string()))?;
    let users = plan.users;
    let mut stage = Stage::new(plan, Recorder::start()?, Arc::clone(&progress), minter);
    check_on_sale(&stage).await?;
    progress.begin(Phase::Buying, u64::from(users));
    stage.recorder = Recorder::start()?;
    let stage = Arc::new(stage);
    let (told, pushed) = Box::pin(buy_all(&stage)).await;
    let duration = stage.recorder.duration();
    progress.end();
    let nobody = UserHistory {
        quantity: 1,
        listening: Listening::default(),
        end: End::Unreachable,
        events: Vec::new(),
    };
    let mut histories = vec![nobody; usize::try_from(users).unwrap_or(0)];
    for (index, user) in told {
        if let Some(slot) = usize::try_from(index).ok().and_then(|index| histories.get_mut(index)) {
            *slot = user;
        }
    }
    let first_user = stage.plan.first_user;
    for (user, event) in pushed {
        let index = user.0.checked_sub(first_user).and_then(|index| usize::try_from(index).ok());
        if let Some(history) = index.and_then(|index| histories.get_mut(index)) {
            history.events.push(event);
        }
    }
    Box::pin(ask_results(&stage, &mut histories)).await;
    for user in &mut histories {
        user.events.sort_by_key(|event| event.received_ns);
    }
    let (activity, sku) = (stage.plan.activity, stage.plan.sku);
    let (tally, latency_us) = stage.recorder.sum()?;
    let buys = stage.recorder.buys();
    Ok(SaleHistory { activity, sku, first_user, users: histories, tally, buys, latency_us, duration })
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
