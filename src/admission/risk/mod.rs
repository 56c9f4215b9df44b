//! Risk lists: whom the rung Risk turns away or slows down, and how that is known without asking anybody.

mod subject;

pub use subject::{Effect, Subject, SubjectError, SubjectKind};
