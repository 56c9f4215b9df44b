//! What a wake goes by: what is on sale and who is listed, loaded once for all the frames that are at hand.
//!
//! Made by a connection's task when it begins to answer, and dropped before it waits. A wake is short: a switch is obeyed a
//! few microseconds later than by a look for each request, and each request is spared two locked instructions.

use std::cell::OnceCell;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::on_sale::OnSale;
use crate::admission::risk::{Lists, Risk};
use crate::stock::Buyers;

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    /// Orders had been forgotten so often before.
    forgettings: u64,
    on_sale: Guard<Arc<OnSale>>,
    /// Loaded when somebody is looked up: a connection of an app knows what is said of its user.
    lists: OnceCell<Guard<Arc<Lists>>>,
}

impl View {
    /// As things stand now.
    pub(super) fn new(buyers: &Buyers, on_sale: &ArcSwap<OnSale>) -> Self {
        // In this order: what was forgotten until then is archived in what is on sale.
        let forgettings = buyers.forgettings();
        Self { forgettings, on_sale: on_sale.load(), lists: OnceCell::new() }
    }

    /// What is on sale.
    pub(super) fn on_sale(&self) -> &OnSale {
        &self.on_sale
    }

    /// The risk lists.
    pub(super) fn lists(&self, risk: &Risk) -> &Lists {
        self.lists.get_or_init(|| risk.lists_for_a_moment())
    }

    /// Whether no orders were forgotten since. Asked after somebody was not found among the buyers: if so, he may hold an
    /// order in an activity that this view does not know to be archived.
    pub(super) fn is_of(&self, buyers: &Buyers) -> bool {
        self.forgettings == buyers.forgettings()
    }
}
