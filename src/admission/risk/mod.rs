//! Risk lists: whom the rung Risk turns away or slows down, and how that is known without asking anybody.
//!
//! Names and effects ([`Subject`], [`Effect`]), everything that is listed as a snapshot ([`Lists`]), and the rung
//! itself ([`Risk`]). Pure: a store keeps the texts, a task of the gateway follows it and publishes snapshots. Runs on the
//! worker threads without a lock; nothing here fails, and what cannot be read of a store lists nobody.

mod lists;
mod pages;
mod slowed;
mod subject;
mod verdict;

pub use lists::{Listed, Lists, Who};
pub use subject::{Effect, Listing, Subject, SubjectError, SubjectKind};
pub use verdict::{HeldVerdict, Refused, Risk, RiskTime};

#[cfg(test)]
mod tests;
