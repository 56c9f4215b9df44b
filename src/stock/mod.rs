//! Stock, exactly: 16 sub-keys per SKU, what is known of them, who waits for them.
pub mod calls;
