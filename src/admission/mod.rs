//! Who may pass: limits and identity. Pure decisions, time is an argument.
