//! How the daemons of a host know of each other: each holds an abstract socket with its installation's number as long as it lives.
//!
//! The kernel tells who serves a device, but of one that is just being made or taken down it does not, and those of a living daemon
//! are nobody's to remove. Nobody connects: that the name is taken says it all, and it is free the moment the process ends, however it does.
//! Names are those of a network namespace; a daemon in another one is not seen, though its devices that are served are.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use manager::Instance;

/// The sign of life of one installation.
#[derive(Debug)]
pub(crate) struct Presence {
    own: Instance,
    _socket: Option<UnixDatagram>,
}

impl Presence {
    /// Shows that the installation's daemon lives, for as long as the value does.
    pub(crate) fn show(own: Instance) -> Self {
        let socket = bind(own);
        if let Err(error) = &socket {
            tracing::warn!(err = %error, "other daemons may not notice that this one lives; is its state directory a copy?");
        }
        Self {
            own,
            _socket: socket.ok(),
        }
    }

    /// Whether another installation's daemon lives, or nobody can tell.
    pub(crate) fn is_alive(&self, instance: Instance) -> bool {
        instance != self.own && bind(instance).is_err()
    }
}

fn bind(instance: Instance) -> io::Result<UnixDatagram> {
    let name = format!("blockyard/{instance}");
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_lives_as_long_as_its_daemon() {
        let [own, other] = [0x00f0_0001, 0x00f0_0002].map(|number| Instance::new(number).unwrap());
        let here = Presence::show(own);
        assert!(!here.is_alive(own));
        assert!(!here.is_alive(other));
        let there = Presence::show(other);
        assert!(here.is_alive(other));
        assert!(there.is_alive(own));
        drop(there);
        assert!(!here.is_alive(other));
    }
}
