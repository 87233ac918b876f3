//! Which installation a state directory is, kept beside the journal so that losing the journal does not lose it.
//!
//! Every kernel device carries the number. A daemon that finds its number again knows what an earlier run left, even
//! without a record of it; with another number those devices would be somebody else's.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use manager::Instance;

const FILE_NAME: &str = "instance";
const NEW_NAME: &str = "instance.new";

/// The number in a state directory.
#[derive(Debug)]
pub(super) struct Identity {
    directory: PathBuf,
    /// What the file says, if there is one that says anything.
    pub(super) known: Option<Instance>,
}

impl Identity {
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let known = match std::fs::read_to_string(directory.join(FILE_NAME)) {
            Ok(text) => text.trim().parse().ok().and_then(Instance::new),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidData
                ) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            directory: directory.to_owned(),
            known,
        })
    }

    /// Makes the file say `instance`, durably.
    pub(super) fn keep(&self, instance: Instance) -> io::Result<()> {
        if self.known == Some(instance) {
            return Ok(());
        }
        let new = self.directory.join(NEW_NAME);
        let mut file = File::create(&new)?;
        writeln!(file, "{}", instance.number())?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(FILE_NAME))?;
        File::open(&self.directory)?.sync_all()
    }
}
