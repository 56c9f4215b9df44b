//! The gateway: connections and the funnel.
