//! The driver's binary interface: `include/uapi/linux/ublk_cmd.h` as of Linux 7.3, in kernel spelling.
//!
//! Every structure is asserted at compile time: its size and the offset of each field. Where a release added something,
//! the release is named; nothing here decides whether the running kernel has it (see [`crate::Features`]).

/// Asserts the size of a structure and the offset of each field.
macro_rules! assert_layout {
    ($name:ident, $size:literal, { $($field:ident: $offset:literal),+ $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)+
        };
    };
}

pub mod control;
pub mod feature;
pub mod io;
pub mod params;
