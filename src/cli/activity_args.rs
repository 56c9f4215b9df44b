//! Arguments of `rushgate activity`, and how SKUs are written on the command line.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::allow_args::AllowArgs;
use super::data_args::{Common, One};
use super::times::parse_time;
use crate::admin::activities::{NewReserve, NewSku};
use crate::config::parse_duration;

/// Arguments of `activity`.
#[derive(Debug, Args)]
pub(super) struct ActivityArgs {
    #[command(subcommand)]
    pub(super) command: ActivityCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ActivityCommand {
    /// Create an activity; its stock is loaded at once, or with Redis before it opens
    Create(CreateArgs),
    /// All activities
    List(Common),
    /// One activity: stock, orders, what is still to be applied
    Show(One),
    /// Load the stock into Redis before the opening; writers do it by themselves some time ahead
    Preheat(One),
    /// Open the entry: it sells inside its window
    Open(One),
    /// Close the entry: within 100 ms everybody without an order is told ENDED
    Close(One),
    /// Add or remove stock, during a sale too
    Stock(StockArgs),
    /// Change whom it is for, and how often one may buy again, during a sale too
    Set(SetArgs),
    /// Who is on its allow-list
    Allow(AllowArgs),
    /// End an activity for good and take it out of Redis; its orders stay in the database
    Archive(One),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Its number, 1 to 4294967295
    #[arg(long)]
    pub(super) id: u64,
    /// For operators; clients do not see it
    #[arg(long)]
    pub(super) name: String,
    /// An article: number, units, price in minor units, and a name if you like; may be repeated
    #[arg(long, required = true, value_name = "SKU:STOCK:PRICE[:NAME]", value_parser = parse_sku)]
    pub(super) sku: Vec<NewSku>,
    /// Units of an SKU's stock that are never loaded into Redis, to be sold from the database while Redis is away (see
    /// the switch stock.mode); may be repeated
    #[arg(long, value_name = "SKU:UNITS", value_parser = parse_reserve)]
    pub(super) fallback_reserve: Vec<NewReserve>,
    /// When it opens: now, +10m, or 2026-11-11T00:00:00Z
    #[arg(long, default_value = "now", value_parser = parse_time)]
    pub(super) opens: u64,
    /// When it closes, written the same way
    #[arg(long, default_value = "+1h", value_parser = parse_time)]
    pub(super) closes: u64,
    /// Greatest quantity of a user's one order
    #[arg(long, default_value_t = 1)]
    pub(super) per_user_limit: u64,
    /// How often a user may buy again after his order was closed: unpaid in time, cancelled, or failed
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub(super) buy_again_max: u64,
    /// How long an order waits for its payment
    #[arg(long, default_value = "15m", value_parser = parse_duration)]
    pub(super) pay_within: Duration,
    /// Whom it is for, by claims of their tokens, such as 'level >= 2 and vip' [default: everybody]
    #[arg(long, value_name = "RULE", default_value = "", hide_default_value = true)]
    pub(super) eligibility: String,
    /// Only users on its allow-list may buy (see `activity allow`)
    #[arg(long)]
    pub(super) allow_list: bool,
    /// Leave the entry closed until `activity open`
    #[arg(long)]
    pub(super) entry_closed: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
#[group(id = "change", required = true, multiple = true, args = ["eligibility", "allow_list", "buy_again_max"])]
pub(super) struct SetArgs {
    /// The activity's number
    pub(super) id: u64,
    /// Whom it is for, by claims of their tokens, such as 'level >= 2 and vip'; '' = everybody
    #[arg(long, value_name = "RULE")]
    pub(super) eligibility: Option<String>,
    /// Whether only users on its allow-list may buy
    #[arg(long, value_name = "on|off", value_parser = parse_on_off)]
    pub(super) allow_list: Option<bool>,
    /// How often a user may buy again after his order was closed, 0 to 254
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(..=254))]
    pub(super) buy_again_max: Option<u8>,
    #[command(flatten)]
    pub(super) common: Common,
}

fn parse_on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(super) struct StockArgs {
    #[command(subcommand)]
    pub(super) command: StockCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum StockCommand {
    /// Add units
    Add(Units),
    /// Remove units, as far as they are free
    Remove(Units),
    /// Add units of the fallback reserve to what Redis sells, as far as they are free
    FromReserve(Units),
}

#[derive(Debug, Args)]
pub(super) struct Units {
    /// The activity's number
    pub(super) id: u64,
    /// The SKU's number
    pub(super) sku: u64,
    /// How many
    #[arg(value_name = "UNITS")]
    pub(super) amount: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

fn parse_reserve(text: &str) -> Result<NewReserve, String> {
    let numbers =
        text.split_once(':').and_then(|(sku, units)| Some((sku.parse().ok()?, units.parse().ok()?)));
    let (sku, units) = numbers.ok_or_else(|| format!("{text:?} is not SKU:UNITS, such as 1:20"))?;
    Ok(NewReserve { sku, units })
}

fn parse_sku(text: &str) -> Result<NewSku, String> {
    let mut parts = text.splitn(4, ':');
    let mut number = |what: &str| {
        let part = parts.next().unwrap_or_default();
        part.parse::<u64>()
            .map_err(|_| format!("{what} is {part:?}, not a number; write SKU:STOCK:PRICE[:NAME]"))
    };
    let (id, stock, price_minor) = (number("SKU")?, number("STOCK")?, number("PRICE")?);
    let name = parts.next().map_or_else(|| format!("SKU {id}"), str::to_owned);
    Ok(NewSku { id, name, price_minor, stock })
}
