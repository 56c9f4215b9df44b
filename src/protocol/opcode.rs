//! Opcodes: what a frame is about. A reply carries the opcode of its request.

use super::wire_enum::wire_enum;

wire_enum! {
    /// An opcode of protocol version 1.
    Opcode: u8 {
        /// First frame of a client.
        Hello = 0x01, "HELLO";
        /// Proves who the client is.
        Auth = 0x02, "AUTH";
        /// Heartbeat, and the server's clock.
        Ping = 0x03, "PING";
        /// Last frame of a side: nothing new after it.
        Goaway = 0x04, "GOAWAY";
        /// A fault that belongs to no known request.
        Error = 0x05, "ERROR";
        /// State, window and stock band of an activity.
        Activity = 0x10, "ACTIVITY";
        /// Fetch a challenge.
        Challenge = 0x11, "CHALLENGE";
        /// Answer a challenge.
        Answer = 0x12, "ANSWER";
        /// Fetch a purchase token.
        Token = 0x13, "TOKEN";
        /// Buy.
        Buy = 0x20, "BUY";
        /// Ask for one's order.
        Result = 0x21, "RESULT";
        /// An order's state changed.
        ResultPush = 0x22, "RESULT_PUSH";
        /// Cancel one's own unpaid order.
        Cancel = 0x23, "CANCEL";
    }
}
