//! Order numbers: process number (27 bits) · sequence (36 bits).
//!
//! No clock in it, so none can step back; no lease, so none can be held twice. The process number is durable and
//! never reused, and one process gives each sequence once: the lower half to orders of its store, the upper half to those
//! of the reserve beside it.

use super::calls::ProcessNumber;
use crate::protocol::OrderNumber;

const SEQUENCE_BITS: u32 = 36;
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;
const HALF_MAX: u64 = SEQUENCE_MAX >> 1;
/// The greatest process number.
pub const PROCESS_MAX: u32 = (1 << 27) - 1;

/// The order numbers of one process, ascending.
#[derive(Debug)]
pub struct OrderNumbers {
    process: ProcessNumber,
    sequence: u64,
    sequence_max: u64,
}

impl OrderNumbers {
    /// The numbers of a process that has given none yet.
    pub const fn new(process: ProcessNumber) -> Self {
        Self { process, sequence: 0, sequence_max: HALF_MAX }
    }

    /// The numbers of a process's reserve, of which none was given yet.
    pub const fn of_reserve(process: ProcessNumber) -> Self {
        Self { process, sequence: HALF_MAX, sequence_max: SEQUENCE_MAX }
    }
}

/// The process that gave an order its number.
pub(super) fn process_of(order: OrderNumber) -> Option<ProcessNumber> {
    u32::try_from(order.0 >> SEQUENCE_BITS).ok().map(ProcessNumber)
}

impl Iterator for OrderNumbers {
    type Item = OrderNumber;

    /// The next number; `None` after 2³⁵ of them (restart the process for a fresh process number).
    fn next(&mut self) -> Option<OrderNumber> {
        if self.sequence >= self.sequence_max || self.process.0 > PROCESS_MAX {
            return None;
        }
        self.sequence = self.sequence.saturating_add(1);
        Some(OrderNumber((u64::from(self.process.0) << SEQUENCE_BITS) | self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_two_processes_never_meet_and_end_instead_of_wrapping() {
        let mut first = OrderNumbers::new(ProcessNumber(1));
        let process = ProcessNumber(PROCESS_MAX);
        let mut last = OrderNumbers { sequence: SEQUENCE_MAX - 1, ..OrderNumbers::of_reserve(process) };
        assert_eq!(first.next(), Some(OrderNumber((1 << 36) + 1)));
        assert_eq!(first.next(), Some(OrderNumber((1 << 36) + 2)));
        assert_eq!(last.next(), Some(OrderNumber((1 << 63) - 1)));
        assert_eq!(process_of(OrderNumber((1 << 36) + 2)), Some(ProcessNumber(1)));
        assert_eq!(process_of(OrderNumber((1 << 63) - 1)), Some(ProcessNumber(PROCESS_MAX)));
        assert_eq!(last.next(), None);
    }

    #[test]
    fn the_reserve_of_a_process_gives_numbers_that_its_store_never_gives() {
        let process = ProcessNumber(1);
        let mut store = OrderNumbers { sequence: HALF_MAX - 1, ..OrderNumbers::new(process) };
        let greatest = store.next();
        assert_eq!((greatest, store.next()), (Some(OrderNumber((1 << 36) | HALF_MAX)), None));
        let least = OrderNumbers::of_reserve(process).next();
        assert_eq!(least, Some(OrderNumber((1 << 36) | (HALF_MAX + 1))));
    }
}
