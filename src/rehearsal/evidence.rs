//! Both sides of the audit together: what clients were told and what the database holds, findable. Pure.

use std::collections::HashMap;

use super::books::{Books, OrderRow};
use super::history::SaleHistory;
use crate::protocol::UserId;

/// Both sides, with the orders findable.
pub(super) struct Evidence<'a> {
    pub(super) history: &'a SaleHistory,
    pub(super) books: &'a Books,
    by_number: HashMap<u64, Vec<&'a OrderRow>>,
    by_user: HashMap<u64, Vec<&'a OrderRow>>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(history: &'a SaleHistory, books: &'a Books) -> Self {
        let (mut by_number, mut by_user) = (HashMap::new(), HashMap::new());
        for order in &books.orders {
            by_number.entry(order.number).or_insert_with(Vec::new).push(order);
            by_user.entry(order.user).or_insert_with(Vec::new).push(order);
        }
        Self { history, books, by_number, by_user }
    }

    pub(super) fn with_number(&self, number: u64) -> &[&'a OrderRow] {
        self.by_number.get(&number).map_or(&[], Vec::as_slice)
    }

    pub(super) fn of_user(&self, user: UserId) -> &[&'a OrderRow] {
        self.by_user.get(&user.0).map_or(&[], Vec::as_slice)
    }

    pub(super) fn users_with_orders(&self) -> impl Iterator<Item = (UserId, &[&'a OrderRow])> {
        self.by_user.iter().map(|(user, orders)| (UserId(*user), orders.as_slice()))
    }

    /// Live orders of this sale's SKU, and whether their user takes part in the sale.
    pub(super) fn live_orders(&self) -> impl Iterator<Item = (&'a OrderRow, bool)> {
        let sku = self.history.sku.0;
        let live = self.books.orders.iter().filter(move |order| order.is_live() && order.sku == sku);
        live.map(|order| (order, self.history.of_user(UserId(order.user)).is_some()))
    }
}
