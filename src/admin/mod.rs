//! Operators: activities, health, metrics.
