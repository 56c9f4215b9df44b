//! What the measurements of the hot path share: a gateway whose one article is sold out, conversations with it, and
//! the bytes that clients send it. bench/micro/README.md says what is measured and how to run it.
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a measurement that cannot be set up has nothing to say"
)]

pub mod requests;
pub mod scene;
pub mod work;

pub use scene::Scene;
pub use work::Work;
