//! The journal's store: a transactional file under the state directory, and the thread that writes it.
//!
//! The manager's changes are byte strings; what they mean is its business. Changes that arrive while a transaction is being
//! made durable wait and go into the next one together (group commit), so many creations at once share one sync.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use manager::{Change, Fault, FaultKind, Instance, STAMP_FIELD_MAX, StoredRecord};
use redb::{Database, ReadableTable, TableDefinition};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::guarded::message_of;
use super::identity::Identity;

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// Facts about the installation, not about devices.
const INSTALLATION: TableDefinition<'_, &str, u32> = TableDefinition::new("installation");
/// The 24-bit number that this installation's devices carry; drawn at random once.
const INSTANCE: &str = "instance";
const FILE_NAME: &str = "journal.redb";
/// Locked by the daemon that has the state directory. Empty; it stays.
const LOCK_NAME: &str = "lock";
/// Changes of one transaction. Bounds the time one batch makes the next one wait.
const BATCH_MAX: usize = 256;
/// Memory for pages of the store. The records of ten thousand devices are about 2 MiB.
const CACHE_BYTES: usize = 4 << 20;

/// What becomes of a batch of changes.
pub(crate) type Done = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// What was found at start.
#[derive(Debug)]
pub(crate) struct Found {
    /// Which installation this is.
    pub(crate) instance: Instance,
    /// The records, in no order.
    pub(crate) records: Vec<StoredRecord>,
    /// Whether the state directory was used before and its journal is gone.
    pub(crate) is_lost: bool,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error(
        "the state directory {path} cannot be used; check that it exists or can be made, and that the daemon may write to it"
    )]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the state directory {path} is a file; name a directory with --state-dir")]
    NoDirectory { path: PathBuf },
    #[error(
        "the journal {path} is in use by another daemon; see it with `blockyard status`, or give a second daemon both a --state-dir and a --socket of its own"
    )]
    InUse { path: PathBuf },
    #[error(
        "the journal {path} cannot be opened; if it is damaged, stop all devices, move it away and start again"
    )]
    Open {
        path: PathBuf,
        #[source]
        source: redb::Error,
    },
    #[error(
        "the journal {path} is damaged: the store failed while it read it ({detail}); stop all devices, move it away and start again"
    )]
    Damaged { path: PathBuf, detail: String },
    #[error("the thread of the journal cannot be started")]
    Thread(#[source] std::io::Error),
}

/// The writing side. Dropping it ends the thread after the last transaction.
#[derive(Debug)]
pub(crate) struct Journal {
    queue: mpsc::Sender<(Vec<Change>, DoneBox)>,
}

struct DoneBox(Done);

impl std::fmt::Debug for DoneBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DoneBox")
    }
}

impl Journal {
    /// Opens or makes the journal and reads all of it.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Found), JournalError> {
        if directory.exists() && !directory.is_dir() {
            let path = directory.to_owned();
            return Err(JournalError::NoDirectory { path });
        }
        let unusable = |source| JournalError::Directory {
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(unusable)?;
        let lock = lock(directory)?;
        let path = directory.join(FILE_NAME);
        let open_error = |error: redb::Error| match error {
            redb::Error::DatabaseAlreadyOpen => JournalError::InUse { path: path.clone() },
            // Content that is no journal comes as an I/O error too; only the system's own are about the directory.
            redb::Error::Io(source) if source.raw_os_error().is_some() => JournalError::Directory {
                path: directory.to_owned(),
                source,
            },
            source => JournalError::Open {
                path: path.clone(),
                source,
            },
        };
        let identity = Identity::read(directory).map_err(unusable)?;
        let is_empty = std::fs::metadata(&path).map_or(true, |metadata| metadata.len() == 0);
        let opened = caught(|| {
            // Checked whole: a plain open trusts what it finds.
            let database = builder().set_check_integrity_on_open(true).create(&path)?;
            let (instance, records) = read(&database, identity.known)?;
            Ok((database, instance, records))
        });
        let (database, instance, records) = match opened {
            Ok(opened) => opened.map_err(open_error)?,
            Err(detail) => return Err(JournalError::Damaged { path, detail }),
        };
        let found = Found {
            instance,
            records,
            is_lost: is_empty && identity.known.is_some(),
        };
        identity.keep(instance).map_err(unusable)?;
        let store = Store {
            path: path.clone(),
            database: Some(database),
            _lock: lock,
        };
        let (queue, orders) = mpsc::channel();
        std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || run(store, &orders))
            .map_err(JournalError::Thread)?;
        Ok((Self { queue }, found))
    }

    /// Makes changes durable, then calls back on the journal's thread.
    pub(crate) fn write(&self, changes: Vec<Change>, done: Done) {
        if let Err(mpsc::SendError((_, DoneBox(done)))) = self.queue.send((changes, DoneBox(done)))
        {
            done(Err(Fault::new(
                FaultKind::Journal,
                "the journal's thread has ended",
            )));
        }
    }
}

/// Takes the state directory for this daemon alone.
fn lock(directory: &Path) -> Result<File, JournalError> {
    let path = directory.join(LOCK_NAME);
    let failed = |source| JournalError::Directory {
        path: directory.to_owned(),
        source,
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(JournalError::InUse {
            path: directory.join(FILE_NAME),
        }),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Which installation it is, by the journal itself or else by `identity`, and the records.
fn read(
    database: &Database,
    identity: Option<Instance>,
) -> Result<(Instance, Vec<StoredRecord>), redb::Error> {
    let transaction = database.begin_write()?;
    let mut records = Vec::new();
    let instance = {
        let table = transaction.open_table(RECORDS)?;
        for entry in table.iter()? {
            let (key, value) = entry?;
            records.push(StoredRecord {
                key: key.value().to_owned(),
                value: value.value().to_owned(),
            });
        }
        let mut table = transaction.open_table(INSTALLATION)?;
        let known = table
            .get(INSTANCE)?
            .and_then(|number| Instance::new(number.value()));
        match known {
            Some(instance) => instance,
            None => {
                let instance = match identity {
                    Some(instance) => instance,
                    None => draw_instance()?,
                };
                table.insert(INSTANCE, instance.number())?;
                instance
            }
        }
    };
    transaction.commit()?;
    Ok((instance, records))
}

fn draw_instance() -> Result<Instance, redb::Error> {
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(redb::Error::Io)?;
    Instance::new(u32::from_le_bytes(bytes) & STAMP_FIELD_MAX)
        .ok_or_else(|| redb::Error::Corrupted("no instance number could be drawn".into()))
}

/// The open store. After an I/O error (a full file system) redb answers every further call with an error until the file
/// is opened anew; it is closed then and opened with the next write, so the journal works again as soon as there is space.
struct Store {
    path: PathBuf,
    database: Option<Database>,
    /// Held for as long as the daemon lives: the store's own lock is gone while it is closed.
    _lock: File,
}

fn run(mut store: Store, orders: &mpsc::Receiver<(Vec<Change>, DoneBox)>) {
    while let Ok(first) = orders.recv() {
        let mut batch = vec![first];
        batch.extend(orders.try_iter().take(BATCH_MAX));
        let changes = batch.iter().flat_map(|(changes, _)| changes);
        let result = match caught(|| store.commit(changes)) {
            Ok(result) => result.map_err(|error| fault(&error)),
            Err(detail) => {
                let text = format!(
                    "the journal could not be written: the store failed ({detail}); look at the daemon's log"
                );
                Err(Fault::new(FaultKind::Journal, text))
            }
        };
        for (_, DoneBox(done)) in batch {
            done(result.clone());
        }
    }
}

/// What the store says, or how it panicked: it does at some damaged files.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // A store that panicked is not used again: it is dropped with the closure, or opened anew.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.map_err(|panic| message_of(panic.as_ref()))
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

impl Store {
    fn commit<'a>(&mut self, changes: impl Iterator<Item = &'a Change>) -> Result<(), redb::Error> {
        let database = match self.database.take() {
            Some(database) => database,
            None => builder().create(&self.path)?,
        };
        commit(&database, changes)?;
        // Kept only when it worked; see the type.
        self.database = Some(database);
        Ok(())
    }
}

fn commit<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(RECORDS)?;
        for change in changes {
            match change {
                Change::Put { key, value } => drop(table.insert(key.as_str(), value.as_slice())?),
                Change::Delete { key } => drop(table.remove(key.as_str())?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn fault(error: &redb::Error) -> Fault {
    let (kind, advice) = match error {
        redb::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => (
            FaultKind::NoSpace,
            "free space on the file system of the state directory",
        ),
        _ => (
            FaultKind::Journal,
            "check the file system of the state directory",
        ),
    };
    Fault::new(
        kind,
        format!("the journal could not be written: {error}; {advice}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(journal: &Journal, changes: Vec<Change>) -> Result<(), Fault> {
        let (sender, receiver) = mpsc::channel();
        journal.write(
            changes,
            Box::new(move |result| sender.send(result).unwrap()),
        );
        receiver.recv().unwrap()
    }

    fn put(key: &str, value: &str) -> Change {
        Change::Put {
            key: key.into(),
            value: value.into(),
        }
    }

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, found) = Journal::open(directory.path()).unwrap();
        assert!(found.records.is_empty());
        write(&journal, vec![put("a", "1"), put("b", "2")]).unwrap();
        write(
            &journal,
            vec![put("a", "3"), Change::Delete { key: "b".into() }],
        )
        .unwrap();
        assert!(matches!(
            Journal::open(directory.path()),
            Err(JournalError::InUse { .. })
        ));
        drop(journal);
        // The thread closes the store a moment after the handle is dropped.
        let deadline = std::time::Duration::from_secs(5);
        let (sender, receiver) = mpsc::channel();
        let path = directory.path().to_owned();
        std::thread::spawn(move || {
            loop {
                if let Ok((_journal, found)) = Journal::open(&path) {
                    return sender.send(found).unwrap();
                }
                std::thread::yield_now();
            }
        });
        let again = receiver.recv_timeout(deadline).unwrap();
        assert_eq!(again.instance, found.instance);
        assert_eq!(
            again.records,
            [StoredRecord {
                key: "a".into(),
                value: b"3".to_vec()
            }]
        );
    }

    #[test]
    fn a_file_that_is_no_journal_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        for content in [
            b"no journal at all".to_vec(),
            vec![0; 8192],
            vec![0xff; 1 << 20],
        ] {
            std::fs::write(&path, &content).unwrap();
            let error = Journal::open(directory.path()).unwrap_err();
            assert!(error.to_string().contains("move it away"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    /// A journal that was cut to no byte was taken for a new one, another cut made the store panic, and without the journal's
    /// number the kernel's devices belonged to nobody.
    #[test]
    fn a_damaged_journal_opens_or_says_so_and_a_lost_one_keeps_the_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let (journal, found) = Journal::open(directory.path()).unwrap();
        assert!(!found.is_lost);
        let records: Vec<_> = (0..40).map(|n| put(&n.to_string(), "value")).collect();
        write(&journal, records).unwrap();
        drop(journal);
        let whole = loop {
            // The thread closes the store a moment after the handle is dropped.
            if let Ok((journal, _)) = Journal::open(directory.path()) {
                drop(journal);
                break std::fs::read(&path).unwrap();
            }
        };
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..60 {
            let mut damaged = whole.clone();
            if round % 2 == 0 {
                damaged.truncate(rng.usize(..whole.len()) / 512 * 512);
            } else {
                let at = rng.usize(..whole.len().min(64 << 10));
                damaged[at] ^= rng.u8(1..);
            }
            let scratch = tempfile::tempdir().unwrap();
            std::fs::copy(
                directory.path().join("instance"),
                scratch.path().join("instance"),
            )
            .unwrap();
            std::fs::write(scratch.path().join(FILE_NAME), &damaged).unwrap();
            match Journal::open(scratch.path()) {
                Ok((_, again)) => assert_eq!(again.instance, found.instance),
                Err(error) => {
                    assert!(error.to_string().contains("move it away"), "{error}");
                }
            }
        }
        std::fs::write(&path, []).unwrap();
        let again = loop {
            match Journal::open(directory.path()) {
                Ok((_, again)) => break again,
                Err(JournalError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(again.is_lost && again.records.is_empty());
        assert_eq!(again.instance, found.instance);
    }

    #[test]
    fn an_unusable_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Journal::open(&file.path().join("state")).unwrap_err();
        assert!(error.to_string().contains("state directory"));
        let error = Journal::open(file.path()).unwrap_err();
        assert!(error.to_string().contains("is a file"));
    }
}
