//! The newc cpio format, as far as an initramfs needs it (kernel: Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive in the making. Entries appear in the order in which they were added; parents first.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const MODE_DIRECTORY: u32 = 0o040_755;
const MODE_PROGRAM: u32 = 0o100_755;
const MODE_LINK: u32 = 0o120_777;

impl Archive {
    /// Adds a directory.
    pub(crate) fn directory(&mut self, name: &str) {
        self.entry(name, MODE_DIRECTORY, &[]);
    }

    /// Adds a file that everyone may run.
    pub(crate) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, MODE_PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, MODE_LINK, target.as_bytes());
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        // magic, then 13 fields of 8 hexadecimal digits: ino mode uid gid nlink mtime filesize devmajor devminor
        // rdevmajor rdevminor namesize check.
        let header = format!(
            "070701{ino:08x}{mode:08x}{zero:08x}{zero:08x}{nlink:08x}{zero:08x}{size:08x}\
             {zero:08x}{zero:08x}{zero:08x}{zero:08x}{namesize:08x}{zero:08x}",
            ino = self.entries,
            zero = 0,
            nlink = 1,
            size = content.len(),
            namesize = name.len() + 1,
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn entries_are_aligned_and_the_trailer_ends_them() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.program("bin/a", b"12345");
        archive.link("bin/b", "a");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("070701").count(), 4);
        assert!(text.contains("TRAILER!!!"));
        // The size field of bin/a is the seventh after the magic.
        let at = text.find("bin/a").unwrap() - 110;
        assert_eq!(&text[at + 6 + 6 * 8..at + 6 + 7 * 8], "00000005");
    }

    #[test]
    fn cpio_reads_back_what_was_written() {
        let Some(busybox) = crate::program::find_program("busybox") else {
            crate::skip("busybox is not installed");
            return;
        };
        let mut archive = Archive::default();
        archive.directory("d");
        archive.program("d/file", b"content");
        archive.link("d/link", "file");
        let bytes = archive.finish();
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(busybox)
            .args(["cpio", "-i", "-H", "newc"])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(
            std::fs::read(dir.path().join("d/link")).unwrap(),
            b"content"
        );
    }
}
