//! QEMU's command line.

use std::path::Path;

use crate::job::{GuestClock, GuestJob};

/// Files and sockets of one machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wiring<'a> {
    pub(crate) image: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// Where the kernel's console goes.
    pub(crate) console: &'a Path,
    pub(crate) root_socket: &'a Path,
    pub(crate) out_socket: &'a Path,
}

/// The kernel's parameters: reboot at once on a panic (QEMU then ends), no slow mitigations, room for a long log.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 quiet mitigations=off log_buf_len=4M";

/// Two facts about QEMU 7.2's multi-threaded emulation: five-level page tables cost and give nothing, and with
/// cmpxchg16b the slab allocator of 6.x kernels crashes at random.
const CPU: &str = "max,la57=off,-cx16";

/// Every argument of `qemu-system-x86_64`. Standard output is the job's output.
pub(crate) fn arguments(job: &GuestJob, wiring: &Wiring<'_>) -> Vec<String> {
    let memory = format!("{}M", job.memory_mib);
    let accel = match job.clock {
        GuestClock::Wall => "-accel tcg,thread=multi",
        GuestClock::Instructions => "-accel tcg,thread=single -icount shift=0,sleep=off",
    };
    let fixed = format!(
        "{accel} -cpu {CPU} -m {memory} -smp {cpus} -nodefaults -display none -no-reboot \
         -numa node,memdev=mem -device virtio-serial-pci -device virtserialport,chardev=job,nr=1",
        cpus = job.cpus,
    );
    let mut arguments: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
    let mut pair = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    pair(
        "-object",
        format!("memory-backend-memfd,id=mem,size={memory},share=on"),
    );
    pair("-serial", format!("file:{}", escape(wiring.console)));
    // Not `stdio`: that one also reads standard input, and at its end takes the port for closed.
    pair("-chardev", "file,id=job,path=/proc/self/fd/1".to_owned());
    for (tag, socket) in [("rootfs", wiring.root_socket), ("outfs", wiring.out_socket)] {
        pair(
            "-chardev",
            format!("socket,id={tag},path={}", escape(socket)),
        );
        pair(
            "-device",
            format!("vhost-user-fs-pci,chardev={tag},tag={tag}"),
        );
    }
    for (index, disk) in job.disks.iter().enumerate() {
        // directsync: a flush is what it says, and nothing waits in the host's page cache.
        pair(
            "-drive",
            format!(
                "file={},if=none,id=disk{index},format=raw,cache=directsync,discard=unmap",
                escape(&disk.path)
            ),
        );
        pair(
            "-device",
            format!(
                "virtio-blk-pci,drive=disk{index},serial={}",
                disk.serial.replace(',', ",,")
            ),
        );
    }
    pair("-kernel", wiring.image.display().to_string());
    pair("-initrd", wiring.initramfs.display().to_string());
    pair("-append", KERNEL_ARGUMENTS.to_owned());
    arguments
}

/// A comma ends a value in QEMU's option lists; two stand for one.
fn escape(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Disk;

    fn line(job: &GuestJob) -> String {
        let path = Path::new("/t/a,b");
        let wiring = Wiring {
            image: path,
            initramfs: path,
            console: path,
            root_socket: path,
            out_socket: path,
        };
        arguments(job, &wiring).join(" ")
    }

    #[test]
    fn time_by_instructions_gives_up_parallel_cpus() {
        let mut job = GuestJob::new(["true"]);
        assert!(line(&job).contains("thread=multi"));
        assert!(!line(&job).contains("icount"));
        job.clock = GuestClock::Instructions;
        assert!(line(&job).contains("thread=single -icount shift=0,sleep=off"));
    }

    #[test]
    fn commas_in_paths_and_serials_are_escaped() {
        let mut job = GuestJob::new(["true"]);
        job.disks.push(Disk {
            path: "/d,isk".into(),
            serial: "s,1".to_owned(),
        });
        let line = line(&job);
        assert!(line.contains("file=/d,,isk,if=none,id=disk0"), "{line}");
        assert!(line.contains("serial=s,,1"));
        assert!(line.contains("path=/t/a,,b"));
        assert!(line.contains("-kernel /t/a,b "));
    }
}
