//! Opcodes: what a frame is about. A reply carries the opcode of its request.

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $text:literal;)+) => {
        /// An opcode of protocol version 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[doc = $doc])+ $name = $code,)+
        }

        impl Opcode {
            /// Every opcode of version 1.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// `None` for an opcode that version 1 does not know.
            pub const fn from_wire(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The name used in protocol.md and counters.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

opcodes! {
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
}
