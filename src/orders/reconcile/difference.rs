//! What can be wrong: its kinds, what is said of each, and what sets it right. Pure.

use crate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::redis::AppliedLoad;

/// A kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A live mark of a number that SQL does not know, and no record of it is on its way.
    MarkWithoutOrder,
    /// SQL has an order whose mark is not in its shard, or is released there.
    OrderWithoutMark,
    /// The feed tells a reservation that has no mark and no order.
    RecordWithoutMark,
    /// An order that is over still holds its units: its ledger row says that they went back.
    ReleaseUndone,
    /// An order that is over has no ledger row.
    LedgerRowMissing,
    /// The ledger gives back units of an order that stands.
    LedgerAgainstOrder,
    /// A mark that does not know how far its order has come, and is not about to be told.
    StateBehind,
    /// A mark that is further than its order.
    StateAhead,
    /// A mark of other units than its order.
    OtherUnits,
    /// More or fewer units are free in a shard than its loads, moves and marks leave.
    Units,
    /// SQL counts another stock than its loads and orders add up to.
    CountedStock,
    /// More or fewer units of the reserve are free than what was held back and its orders leave.
    ReserveUnits,
    /// SQL knows that a shard has applied a load that it does not remember.
    LoadForgotten,
    /// A shard has applied a load that SQL does not know, or with other amounts.
    LoadUnknown,
    /// More units came in from another shard than ever left it.
    MovedTooMany,
    /// Units left a shard and nobody brings them in.
    MoveHalfDone,
}

impl Kind {
    /// As `--json` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MarkWithoutOrder => "mark_without_order",
            Self::OrderWithoutMark => "order_without_mark",
            Self::RecordWithoutMark => "record_without_mark",
            Self::ReleaseUndone => "release_undone",
            Self::LedgerRowMissing => "ledger_row_missing",
            Self::LedgerAgainstOrder => "ledger_against_order",
            Self::StateBehind => "state_behind",
            Self::StateAhead => "state_ahead",
            Self::OtherUnits => "other_units",
            Self::Units => "units",
            Self::CountedStock => "counted_stock",
            Self::ReserveUnits => "reserve_units",
            Self::LoadForgotten => "load_forgotten",
            Self::LoadUnknown => "load_unknown",
            Self::MovedTooMany => "moved_too_many",
            Self::MoveHalfDone => "move_half_done",
        }
    }

    /// 1: a mark without its order; 2: an order without its mark; 3: sums that do not agree.
    pub const fn class(self) -> u8 {
        match self {
            Self::MarkWithoutOrder => 1,
            Self::OrderWithoutMark | Self::RecordWithoutMark => 2,
            _ => 3,
        }
    }
}

/// What sets a difference right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Append the record of the reservation once more.
    AppendRecord,
    /// Write the order's row anew.
    RestoreOrder,
    /// Write the mark; `state` is the order's.
    WriteMark(Mark),
    /// Owe the release, to be driven by a writer.
    OweRelease,
    /// Tell the shard how the order stands.
    TellState(Mark),
    /// Raise or lower free units.
    AddUnits(i64),
    /// Bring SQL's counts to what its rows add up to.
    CountStock,
    /// Bring the reserve's free units to what its rows add up to.
    CountReserve,
    /// Remember the load.
    RememberLoad(AppliedLoad),
    /// Raise what left the source.
    RaiseOut {
        /// The shard that the units came to.
        target: ShardId,
        /// Up to this.
        units: u64,
    },
    /// Bring units in.
    BringIn {
        /// The shard that they come from.
        source: ShardId,
        /// Up to this.
        units: u64,
    },
    /// Nothing that is safe without somebody's looking.
    Nothing,
}

pub(super) type Identity = (Kind, Option<ShardId>, Option<SkuId>, Option<UserId>, Option<OrderNumber>, u64);

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Of what kind.
    pub kind: Kind,
    /// In which shard; `None`: in SQL alone.
    pub shard: Option<ShardId>,
    /// Of which SKU; `None`: of several.
    pub sku: Option<SkuId>,
    /// Whose order.
    pub user: Option<UserId>,
    /// Which order.
    pub order: Option<OrderNumber>,
    /// How many units it is about; below zero: too few.
    pub units: i64,
    /// What else has to be the same at the second look for it to be the same difference.
    pub(super) stage: u64,
    /// What is said of it.
    pub sentence: String,
    /// What sets it right.
    pub remedy: Remedy,
    /// How a shard's own sum changes with the remedy: by so many more free units than there should be.
    pub(super) changes: Vec<(ShardId, SkuId, i64)>,
}

impl Difference {
    pub(super) fn of_order(
        kind: Kind,
        (shard, user, mark): (ShardId, UserId, &Mark),
        sentence: String,
        remedy: Remedy,
    ) -> Self {
        Self {
            kind,
            shard: Some(shard),
            sku: Some(mark.sku.sku),
            user: Some(user),
            order: Some(mark.order),
            units: mark.quantity.into(),
            stage: mark.state as u64,
            sentence,
            remedy,
            changes: Vec::new(),
        }
    }

    pub(super) fn of_units(
        kind: Kind,
        (shard, sku): (ShardId, SkuId),
        units: i64,
        sentence: String,
        remedy: Remedy,
    ) -> Self {
        Self {
            kind,
            shard: Some(shard),
            sku: Some(sku),
            user: None,
            order: None,
            units,
            stage: 0,
            sentence,
            remedy,
            changes: Vec::new(),
        }
    }

    /// With the remedy, so many more units are free than the shard's sum leaves.
    pub(super) fn changing(mut self, shard: ShardId, sku: SkuId, by: i64) -> Self {
        self.changes.push((shard, sku, by));
        self
    }

    /// By which it is known again at the second look.
    pub(super) const fn identity(&self) -> Identity {
        (self.kind, self.shard, self.sku, self.user, self.order, self.stage)
    }

    /// Whether `--fix` does something about it.
    pub fn is_mendable(&self) -> bool {
        self.remedy != Remedy::Nothing
    }

    /// What becomes of it with `--fix`.
    pub fn remedy_text(&self) -> &'static str {
        match self.remedy {
            Remedy::AppendRecord => "its record is appended once more; a writer settles it",
            Remedy::RestoreOrder => "its row is written anew, as the mark has it",
            Remedy::WriteMark(_) => "the mark is written",
            Remedy::OweRelease => "the release is owed once more; a writer gives the units back",
            Remedy::TellState(_) => "the shard is told the order's state",
            Remedy::AddUnits(_) => "the free units are corrected by the difference",
            Remedy::CountStock => "the counts are corrected by the difference",
            Remedy::CountReserve => "the reserve's free units are corrected by the difference",
            Remedy::RememberLoad(_) => "the shard remembers the load",
            Remedy::RaiseOut { .. } => "what left the other shard is raised to what came in",
            Remedy::BringIn { .. } => "the units are brought in",
            Remedy::Nothing => match self.kind {
                Kind::StateAhead => {
                    "nothing: look at the order's payments in the database; the mark never goes back"
                }
                Kind::LedgerAgainstOrder => {
                    "nothing: find out whether the order stands; stop the writers first if it does"
                }
                Kind::CountedStock => "nothing: more is sold than was loaded; add stock or close orders",
                _ => "nothing: somebody has to look",
            },
        }
    }
}

pub(super) fn plural(units: i64) -> &'static str {
    if units.unsigned_abs() == 1 { "unit" } else { "units" }
}

pub(super) fn state_name(state: OrderState) -> &'static str {
    match state {
        OrderState::Reserved => "RESERVED",
        OrderState::PendingPayment => "PENDING_PAYMENT",
        OrderState::Paid => "PAID",
        OrderState::Closed => "CLOSED",
        OrderState::Failed => "FAILED",
        OrderState::RefundDue => "REFUND_DUE",
        OrderState::Recorded => "RECORDED",
    }
}
