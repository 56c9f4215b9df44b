//! What an activity holds back from Redis (rule 19 of the stock protocol), as an operator asks for it.

use crate::protocol::SkuId;
use crate::store::catalog::Activity;

/// Units of an SKU to hold back, as an operator gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewReserve {
    /// The SKU.
    pub sku: u64,
    /// Of its stock.
    pub units: u64,
}

/// What is to be held back, or every problem with it.
pub(super) fn check(
    activity: &Activity,
    reserves: &[NewReserve],
    is_server: bool,
) -> Result<Vec<(SkuId, u32)>, Vec<String>> {
    let mut problems = Vec::new();
    if !is_server && !reserves.is_empty() {
        problems.push(
            "a fallback reserve is what is sold while Redis is away, and the embedded store has no Redis; leave it \
             out"
                .to_owned(),
        );
    }
    let mut held: Vec<(SkuId, u32)> = Vec::new();
    for NewReserve { sku: id, units } in reserves {
        let sku = activity.skus.iter().find(|sku| u64::from(sku.id.0) == *id);
        let Some(sku) = sku else {
            problems.push(format!("the fallback reserve names SKU {id}, which the activity does not have"));
            continue;
        };
        if held.iter().any(|(of, _)| *of == sku.id) {
            problems.push(format!("the fallback reserve of SKU {id} is given more than once"));
        }
        match u32::try_from(*units).ok().filter(|units| (1..=sku.stock_total).contains(units)) {
            Some(units) => held.push((sku.id, units)),
            None => problems.push(format!(
                "a fallback reserve of {units} is not between 1 and the {} units of SKU {id}",
                sku.stock_total
            )),
        }
    }
    if problems.is_empty() { Ok(held) } else { Err(problems) }
}
