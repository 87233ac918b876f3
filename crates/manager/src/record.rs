//! Journal records: small JSON values in a store that maps keys to bytes.
//!
//! | key | value |
//! |---|---|
//! | `device/SERIAL` (6 hexadecimal digits) | version, name, serial, spec, size_bytes, read_only, queues, depth, state |
//! | `serial` | version, next: the serial that the next device takes |
//!
//! `state` is `{"kind": "creating"}`, `{"kind": "added", "id": N}`, `{"kind": "live", "id": N}` or
//! `{"kind": "stopping", "id": N or null}`. A record of another version, or with fields that are not known, is not
//! understood and therefore never acted on or removed.

use std::sync::Arc;

use block::{Access, ByteLen, DeviceId};
use serde::{Deserialize, Serialize};

use crate::name::DeviceName;
use crate::request::{CreateParams, CreateRequest, RequestError};
use crate::spec::Spec;
use crate::stamp::Serial;

/// The version of every record.
pub const RECORD_VERSION: u32 = 1;

const DEVICE_PREFIX: &str = "device/";
const SERIAL_KEY: &str = "serial";

/// A key and its value, as the store has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
}

/// How far the device was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// A kernel device with the serial may appear.
    Creating,
    /// The kernel device exists; it may be started.
    Added {
        /// The kernel's number.
        id: DeviceId,
    },
    /// The device is complete and was, or will be, announced.
    Live {
        /// The kernel's number.
        id: DeviceId,
    },
    /// The device is to go.
    Stopping {
        /// The kernel's number, if it has one.
        id: Option<DeviceId>,
    },
}

impl RecordState {
    /// The kernel's number, if it was known.
    #[must_use]
    pub const fn id(self) -> Option<DeviceId> {
        match self {
            Self::Creating => None,
            Self::Added { id } | Self::Live { id } => Some(id),
            Self::Stopping { id } => id,
        }
    }
}

/// The record of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// Its serial, which is also its key.
    pub serial: Serial,
    /// What was asked for.
    pub request: Arc<CreateRequest>,
    /// How far it was.
    pub state: RecordState,
}

/// A record, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of a device.
    Device(DeviceRecord),
    /// The serial that comes next.
    NextSerial(Serial),
}

/// Why a record is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not a key of this journal.
    #[error(
        "the journal has a record {key:?} that this version does not know; a newer version may"
    )]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// Written by another version.
    #[error(
        "the journal record {key} has version {version}, this is {RECORD_VERSION}; use the version that wrote it"
    )]
    Version {
        /// The key.
        key: String,
        /// The version that it names.
        version: u32,
    },
    /// Not the JSON that it should be.
    #[error("the journal record {key} is damaged: {reason}; it is left as it is")]
    Malformed {
        /// The key.
        key: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// Readable, but no device can have been asked for like that.
    #[error("the journal record {key} holds an impossible request: {source}; it is left as it is")]
    Impossible {
        /// The key.
        key: String,
        /// What is impossible.
        source: RequestError,
    },
    /// Key and content name different serials.
    #[error("the journal record {key} is about serial {serial}; it is left as it is")]
    WrongKey {
        /// The key.
        key: String,
        /// The serial in the content.
        serial: Serial,
    },
}

#[derive(Deserialize)]
struct VersionWire {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NextSerialWire {
    version: u32,
    next: Serial,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceWire {
    version: u32,
    name: DeviceName,
    serial: Serial,
    spec: Spec,
    size_bytes: Option<u64>,
    read_only: bool,
    queues: u16,
    depth: u16,
    state: StateWire,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum StateWire {
    Creating,
    Added { id: u32 },
    Live { id: u32 },
    Stopping { id: Option<u32> },
}

impl Record {
    /// The key under which it is stored.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Device(device) => device_key(device.serial),
            Self::NextSerial(_) => SERIAL_KEY.into(),
        }
    }

    /// The value to store.
    ///
    /// # Errors
    /// None that is known; JSON encoders can fail in principle.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        match self {
            Self::Device(device) => serde_json::to_vec(&device_wire(device)),
            Self::NextSerial(next) => serde_json::to_vec(&NextSerialWire {
                version: RECORD_VERSION,
                next: *next,
            }),
        }
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// [`RecordError`] when any part of it is not exactly what [`Record::encode`] writes.
    pub fn decode(stored: &StoredRecord) -> Result<Self, RecordError> {
        let key = &stored.key;
        let is_device = key.starts_with(DEVICE_PREFIX);
        if !is_device && key != SERIAL_KEY {
            return Err(RecordError::UnknownKey { key: key.clone() });
        }
        let VersionWire { version } = parse(stored)?;
        if version != RECORD_VERSION {
            return Err(RecordError::Version {
                key: key.clone(),
                version,
            });
        }
        if is_device {
            let device = device_from_wire(key, parse(stored)?)?;
            Ok(Self::Device(device))
        } else {
            let NextSerialWire { next, .. } = parse(stored)?;
            Ok(Self::NextSerial(next))
        }
    }
}

/// The key of a device's record.
pub(crate) fn device_key(serial: Serial) -> String {
    format!("{DEVICE_PREFIX}{serial}")
}

/// The serial that a device's key names, also when the record under it cannot be read.
pub(crate) fn serial_of_key(key: &str) -> Option<Serial> {
    let digits = key.strip_prefix(DEVICE_PREFIX)?;
    Serial::new(u32::from_str_radix(digits, 16).ok()?)
}

fn parse<'a, T: Deserialize<'a>>(stored: &'a StoredRecord) -> Result<T, RecordError> {
    serde_json::from_slice(&stored.value).map_err(|error| RecordError::Malformed {
        key: stored.key.clone(),
        reason: error.to_string(),
    })
}

fn device_wire(device: &DeviceRecord) -> DeviceWire {
    let request = &device.request;
    DeviceWire {
        version: RECORD_VERSION,
        name: request.name().clone(),
        serial: device.serial,
        spec: request.spec().clone(),
        size_bytes: request.size().map(|size| size.0),
        read_only: request.access() == Access::ReadOnly,
        queues: request.queues(),
        depth: request.depth(),
        state: match device.state {
            RecordState::Creating => StateWire::Creating,
            RecordState::Added { id } => StateWire::Added { id: id.0 },
            RecordState::Live { id } => StateWire::Live { id: id.0 },
            RecordState::Stopping { id } => StateWire::Stopping {
                id: id.map(|id| id.0),
            },
        },
    }
}

fn device_from_wire(key: &str, wire: DeviceWire) -> Result<DeviceRecord, RecordError> {
    if key != device_key(wire.serial) {
        return Err(RecordError::WrongKey {
            key: key.into(),
            serial: wire.serial,
        });
    }
    let request = CreateRequest::new(CreateParams {
        name: wire.name,
        spec: wire.spec,
        size: wire.size_bytes.map(ByteLen),
        access: if wire.read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        queues: Some(wire.queues),
        depth: Some(wire.depth),
    })
    .map_err(|source| RecordError::Impossible {
        key: key.into(),
        source,
    })?;
    Ok(DeviceRecord {
        serial: wire.serial,
        request: Arc::new(request),
        state: match wire.state {
            StateWire::Creating => RecordState::Creating,
            StateWire::Added { id } => RecordState::Added { id: DeviceId(id) },
            StateWire::Live { id } => RecordState::Live { id: DeviceId(id) },
            StateWire::Stopping { id } => RecordState::Stopping {
                id: id.map(DeviceId),
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(state: RecordState) -> Record {
        let request = CreateRequest::new(CreateParams {
            name: "vm-1".parse().unwrap(),
            spec: "raw:/srv/a \"b\".img".parse().unwrap(),
            size: Some(ByteLen(8 << 30)),
            access: Access::ReadOnly,
            queues: Some(2),
            depth: Some(128),
        })
        .unwrap();
        Record::Device(DeviceRecord {
            serial: Serial::new(0xab).unwrap(),
            request: Arc::new(request),
            state,
        })
    }

    fn store(record: &Record) -> StoredRecord {
        StoredRecord {
            key: record.key(),
            value: record.encode().unwrap(),
        }
    }

    #[test]
    fn every_record_comes_back_as_it_was() {
        let id = DeviceId(7);
        for record in [
            device(RecordState::Creating),
            device(RecordState::Added { id }),
            device(RecordState::Live { id }),
            device(RecordState::Stopping { id: Some(id) }),
            device(RecordState::Stopping { id: None }),
            Record::NextSerial(Serial::new(0xff_ffff).unwrap()),
        ] {
            assert_eq!(Record::decode(&store(&record)), Ok(record));
        }
    }

    #[test]
    fn the_written_form_stays_as_it_is() {
        let stored = store(&device(RecordState::Added { id: DeviceId(7) }));
        assert_eq!(stored.key, "device/0000ab");
        assert_eq!(
            String::from_utf8(stored.value).unwrap(),
            r#"{"version":1,"name":"vm-1","serial":171,"spec":"raw:/srv/a \"b\".img","size_bytes":8589934592,"#
                .to_owned()
                + r#""read_only":true,"queues":2,"depth":128,"state":{"kind":"added","id":7}}"#
        );
    }

    #[test]
    fn a_record_cut_anywhere_is_an_error() {
        let whole = store(&device(RecordState::Live { id: DeviceId(7) }));
        for len in 0..whole.value.len() {
            let cut = StoredRecord {
                key: whole.key.clone(),
                value: whole.value[..len].to_vec(),
            };
            assert!(
                matches!(Record::decode(&cut), Err(RecordError::Malformed { .. })),
                "cut at {len}"
            );
        }
    }

    #[test]
    fn flipped_bytes_never_panic_and_never_change_the_key() {
        let whole = store(&device(RecordState::Live { id: DeviceId(7) }));
        for index in 0..whole.value.len() {
            for bit in 0..8 {
                let mut stored = whole.clone();
                stored.value[index] ^= 1 << bit;
                if let Ok(record) = Record::decode(&stored) {
                    assert_eq!(record.key(), whole.key);
                }
            }
        }
    }

    #[test]
    fn each_damage_has_its_own_error() {
        let whole = store(&device(RecordState::Creating));
        let text = String::from_utf8(whole.value.clone()).unwrap();
        let with = |from: &str, to: &str| {
            assert!(text.contains(from));
            Record::decode(&StoredRecord {
                key: whole.key.clone(),
                value: text.replace(from, to).into_bytes(),
            })
        };
        let version = with(r#""version":1"#, r#""version":2"#);
        assert!(matches!(
            version,
            Err(RecordError::Version { version: 2, .. })
        ));
        let wrong_key = with(r#""serial":171"#, r#""serial":172"#);
        assert!(matches!(wrong_key, Err(RecordError::WrongKey { .. })));
        let impossible = with(r#""depth":128"#, r#""depth":0"#);
        assert!(matches!(impossible, Err(RecordError::Impossible { .. })));
        for (from, to) in [
            ("vm-1", "vm/1"),
            ("raw:/", "raw:"),
            (r#""serial":171"#, r#""serial":16777216"#),
            (r#""kind":"creating""#, r#""kind":"adopting""#),
            (r#""version":1"#, r#""version":1,"more":0"#),
        ] {
            assert!(matches!(with(from, to), Err(RecordError::Malformed { .. })));
        }
        let unknown = Record::decode(&StoredRecord {
            key: "image/1".into(),
            value: Vec::new(),
        });
        assert!(matches!(unknown, Err(RecordError::UnknownKey { .. })));
    }

    #[test]
    fn the_serial_of_a_key_is_known_without_its_record() {
        assert_eq!(serial_of_key("device/0000ab"), Serial::new(0xab));
        assert_eq!(serial_of_key("device/1000000"), None);
        assert_eq!(serial_of_key("device/xyz"), None);
        assert_eq!(serial_of_key("serial"), None);
    }
}
