//! How many reservations may be open and unpaid at a time. Pure data: what is open, the gateway knows.

/// The caps in force; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenUnpaidMax {
    /// Of one user, over all activities.
    pub per_user: u8,
    /// Made from one device, over all users and activities, on one gateway.
    pub per_device: u8,
}

impl OpenUnpaidMax {
    /// The greatest cap of a user.
    pub const PER_USER_MAX: u8 = 100;

    /// The greatest cap of a device: so many of its reservations are remembered.
    pub const PER_DEVICE_MAX: u8 = 8;

    /// Whether anybody is counted.
    pub const fn is_on(self) -> bool {
        self.per_user > 0 || self.per_device > 0
    }
}
