//! Promise: what goes wrong below costs the request that meets it, and nothing that was promised.

use block::{Extent, Op, Request, Sectors, Status, Target};
use image::serving::Library;

use crate::executor::{Answer, Executor};
use crate::images::{self, Lower, UpperKind};
use crate::model::{mark_of, sector};

const SIZE: Sectors = Sectors(320);

fn request(op: Op, start: u64, len: u64) -> Request {
    let extent = Extent {
        start: Sectors(start),
        len: Sectors(len),
    };
    Request {
        op,
        extent,
        fua: false,
        no_unmap: false,
    }
}

/// Does a request to its end, alone.
fn run(executor: &mut Executor, request: Request, data: Vec<u8>) -> Answer {
    let mut random = fastrand::Rng::with_seed(1);
    executor.submit(request, data);
    while executor.step(&mut random) {}
    executor.take_answer().unwrap()
}

fn read(executor: &mut Executor, start: u64, len: u64) -> (Status, Vec<u8>) {
    let bytes = usize::try_from(len * 512).unwrap();
    let answer = run(executor, request(Op::Read, start, len), vec![0xdd; bytes]);
    (answer.status, answer.data)
}

#[test]
fn blocks_with_a_wrong_checksum_are_read_again_and_fail_alone() {
    for lower in [Lower::Lz4, Lower::Zstd] {
        let scratch = images::scratch();
        let mut random = fastrand::Rng::with_seed(7);
        let lowers = images::make_lowers(scratch.path(), &[lower], SIZE, &mut random);
        let config = images::make_image(scratch.path(), &lowers, None, SIZE);
        let right = images::content(&config).unwrap();
        let data =
            (0..SIZE.0).find(|at| right[usize::try_from(at * 512).unwrap()..][..512] != [0; 512]);
        let data = data.unwrap();
        let want = &right[usize::try_from(data * 512).unwrap()..][..512];
        for (damaged, fetches, status) in [
            (0, 1, Status::Ok),
            (1, 2, Status::Ok),
            (3, 4, Status::Ok),
            // A read and three more; then it is the file.
            (4, 4, Status::Corrupt),
        ] {
            // Another one each time, for what was read once is in a cache.
            let mut executor = images::serve(&config, &Library::default(), 0);
            executor.faults.damaged_fetches = damaged;
            let (found, bytes) = read(&mut executor, data, 1);
            assert_eq!(
                (found, executor.faults.fetches),
                (status, fetches),
                "{lower:?}, {damaged}"
            );
            assert!(status != Status::Ok || bytes == want);
            // The next one is as good as ever.
            let (status, bytes) = read(&mut executor, 0, SIZE.0);
            assert!(status.is_ok() && bytes == right);
        }
    }
}

/// A full file system made the first flush fail that had to write records, and every request after it: though nothing was lost, the
/// device had to be removed.
#[test]
fn records_that_had_no_room_are_written_by_the_next_flush() {
    let mut random = fastrand::Rng::with_seed(3);
    for kind in [UpperKind::Log, UpperKind::Hybrid] {
        let scratch = images::scratch();
        let config = images::make_image(scratch.path(), &[], Some(kind), SIZE);
        let mut executor = images::serve(&config, &Library::default(), 0);
        let written = run(&mut executor, request(Op::Write, 8, 2), sector(1).repeat(2));
        assert_eq!(written.status, Status::Ok);
        executor.faults.writes = 1000;
        let flush = request(Op::Flush, 0, 0);
        assert_eq!(
            run(&mut executor, flush, Vec::new()).status,
            Status::NoSpace
        );
        let refused = run(&mut executor, request(Op::Write, 99, 1), sector(2).to_vec());
        assert_eq!(refused.status, Status::NoSpace);
        executor.faults.writes = 0;
        assert_eq!(run(&mut executor, flush, Vec::new()).status, Status::Ok);
        drop(executor);
        let found = images::content_after_repair(&config, &mut random).unwrap();
        let marks: Vec<_> = (7..11)
            .map(|at| mark_of(&found[at * 512..][..512]))
            .collect();
        assert_eq!(marks, [Some(0), Some(1), Some(1), Some(0)], "{kind:?}");
    }
}

/// After a sync that failed nobody knows what the kernel has dropped: a later flush must not promise it.
#[test]
fn a_log_promises_nothing_after_a_failed_sync() {
    let mut random = fastrand::Rng::with_seed(3);
    for kind in [UpperKind::Log, UpperKind::Hybrid] {
        let scratch = images::scratch();
        let config = images::make_image(scratch.path(), &[], Some(kind), SIZE);
        let mut executor = images::serve(&config, &Library::default(), 0);
        let write = |at: u64| (request(Op::Write, at, 1), sector(at).to_vec());
        let flush = request(Op::Flush, 0, 0);
        let (first, data) = write(8);
        run(&mut executor, first, data);
        assert_eq!(run(&mut executor, flush, Vec::new()).status, Status::Ok);
        let (second, data) = write(9);
        run(&mut executor, second, data);
        executor.faults.syncs = 1000;
        assert_eq!(run(&mut executor, flush, Vec::new()).status, Status::Io);
        executor.faults.syncs = 0;
        assert_eq!(run(&mut executor, flush, Vec::new()).status, Status::Io);
        let (third, data) = write(10);
        assert_eq!(run(&mut executor, third, data).status, Status::Io);
        // What can be read is read, and what was promised is there when the image is opened again.
        assert_eq!(read(&mut executor, 8, 1), (Status::Ok, sector(8).to_vec()));
        assert!(executor.target.close().is_err());
        drop(executor);
        let found = images::content_after_repair(&config, &mut random).unwrap();
        assert_eq!(mark_of(&found[8 * 512..][..512]), Some(8), "{kind:?}");
    }
}

#[test]
fn an_image_without_an_upper_is_read_right_in_any_order() {
    let mut random = fastrand::Rng::with_seed(11);
    let stacks = [
        vec![Lower::Plain],
        vec![Lower::PlainInTar, Lower::Zstd],
        vec![Lower::Lz4, Lower::Plain, Lower::Zstd, Lower::Lz4],
    ];
    for stack in stacks {
        let scratch = images::scratch();
        let lowers = images::make_lowers(scratch.path(), &stack, SIZE, &mut random);
        let config = images::make_image(scratch.path(), &lowers, None, SIZE);
        let right = images::content(&config).unwrap();
        for cache_bytes in [0, 64 << 10] {
            let mut executor = images::serve(&config, &Library::default(), cache_bytes);
            for _ in 0..300 {
                while executor.in_flight() < 8 {
                    let start = random.u64(0..SIZE.0);
                    let len = random.u64(1..=SIZE.0 - start);
                    let bytes = usize::try_from(len * 512).unwrap();
                    executor.submit(request(Op::Read, start, len), vec![0xdd; bytes]);
                }
                executor.step(&mut random);
                while let Some(answer) = executor.take_answer() {
                    let start = usize::try_from(answer.request.extent.start.0 * 512).unwrap();
                    assert_eq!(answer.status, Status::Ok);
                    assert!(
                        answer.data == right[start..][..answer.data.len()],
                        "{stack:?}"
                    );
                }
            }
            let write = request(Op::Write, 0, 1);
            let mut alone = images::serve(&config, &Library::default(), 0);
            assert_eq!(
                run(&mut alone, write, vec![0; 512]).status,
                Status::ReadOnly
            );
            assert_eq!(
                run(&mut alone, request(Op::Flush, 0, 0), Vec::new()).status,
                Status::Ok
            );
        }
    }
}
