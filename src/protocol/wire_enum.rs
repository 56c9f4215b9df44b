//! Enumerations whose numbers and names are those of protocol.md: written once, as a table.

/// Makes an enum with its wire code and its name per variant, `ALL`, `from_wire` and `name`.
macro_rules! wire_enum {
    (
        $(#[doc = $title:literal])+
        $enum:ident: $repr:ident {
            $($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $text:literal;)+
        }
    ) => {
        $(#[doc = $title])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($repr)]
        pub enum $enum {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl $enum {
            /// Every one of version 1, by code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// `None` for a code that version 1 does not know.
            pub const fn from_wire(code: $repr) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The name used in protocol.md, counters and logs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}
pub(super) use wire_enum;
