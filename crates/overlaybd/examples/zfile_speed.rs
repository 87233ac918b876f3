//! How much of the plain decompression speed is left when blocks are read through ZFile?
//!
//! Both sides decompress the same blocks of the same file in memory, in the same order, into the same buffer. The plain
//! side calls the compressor's library on slices that were found beforehand; the other one looks up each block, verifies
//! its checksum and decompresses. Rounds of the two alternate; the medians are compared.
//!
//! `cargo run --release -p overlaybd --example zfile_speed [FILE]`: with a file, its first 64 MiB are the data, otherwise
//! words of text.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures and prints"
)]

use std::error::Error;
use std::time::Instant;

use block::ByteLen;
use overlaybd::FileRange;
use overlaybd::zfile::{
    Algorithm, BlockChecksums, BlockDecoder, BlockFormat, BlockSize, Completion, Opener, Options,
    Writer, ZFile,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Raw bytes: more than the processor's caches hold.
const RAW_BYTES: usize = 64 << 20;
const READ_BYTES: u64 = 4096;
/// Odd, so that the median is one of them.
const ROUNDS: usize = 15;

/// A file in memory.
struct Sample {
    file: Vec<u8>,
    zfile: ZFile,
}

/// The plain library, without checksum and table.
enum Plain {
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

fn main() -> Outcome<()> {
    let raw = match std::env::args().nth(1) {
        Some(path) => {
            let mut raw = std::fs::read(path)?;
            raw.truncate(RAW_BYTES);
            raw
        }
        None => text(),
    };
    println!("algorithm block order      plain MB/s zfile MB/s ratio  stored");
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        for block_bytes in [4096, 65536] {
            let sample = Sample::new(&raw, algorithm, block_bytes)?;
            for order in [Order::Sequential, Order::Random] {
                measure(&sample, order)?;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Sequential,
    Random,
}

impl Sample {
    fn new(raw: &[u8], algorithm: Algorithm, block_bytes: u32) -> Outcome<Self> {
        let options = Options {
            blocks: BlockFormat {
                algorithm,
                block_size: BlockSize::try_new(block_bytes).ok_or("block size")?,
                checksums: BlockChecksums::Crc32c,
            },
            completion: Completion::TrailerOnly,
        };
        let mut file = Vec::new();
        let mut writer = Writer::begin(options, &mut file)?;
        writer.push(raw, &mut file)?;
        let _ = writer.finish(&mut file)?; // The trailer is enough.
        let mut opener = Opener::new(ByteLen(file.len() as u64))?;
        while let Some(range) = opener.poll_read() {
            opener.handle_read(slice(&file, range)?)?;
        }
        let zfile = opener.finish()?;
        Ok(Self { file, zfile })
    }
}

fn measure(sample: &Sample, order: Order) -> Outcome<()> {
    let Sample { file, zfile } = sample;
    let blocks = zfile.header().blocks;
    let reads = reads(zfile, order);
    let plan = plan(sample, &reads)?;
    let mut raw = vec![0; blocks.block_size.bytes() as usize];
    let mut plain = match blocks.algorithm {
        Algorithm::Lz4 => Plain::Lz4,
        Algorithm::Zstd => Plain::Zstd(zstd::bulk::Decompressor::new()?),
    };
    let mut decoder = BlockDecoder::new(blocks)?;
    let (mut plain_rounds, mut zfile_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for (compressed, raw_len) in &plan {
            plain.decompress(compressed, raw.get_mut(..*raw_len).ok_or("length")?)?;
        }
        plain_rounds.push(begin.elapsed());
        let begin = Instant::now();
        for wanted in &reads {
            for piece in zfile.pieces(*wanted) {
                let raw = raw.get_mut(..piece.raw_len as usize).ok_or("length")?;
                decoder.decode(slice(file, piece.stored)?, raw)?;
            }
        }
        zfile_rounds.push(begin.elapsed());
    }
    let bytes: usize = plan.iter().map(|(_, raw_len)| raw_len).sum();
    #[expect(clippy::cast_precision_loss, reason = "a figure with three digits")]
    let speed = |mut rounds: Vec<std::time::Duration>| {
        rounds.sort();
        let median = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
        bytes as f64 / median.as_secs_f64() / 1e6
    };
    let (plain, through) = (speed(plain_rounds), speed(zfile_rounds));
    #[expect(clippy::cast_precision_loss, reason = "a figure with two digits")]
    let stored = file.len() as f64 / zfile.len().0 as f64;
    println!(
        "{:<9} {:>5} {:<10} {plain:>10.0} {through:>10.0} {:>5.3} {stored:>6.2}",
        blocks.algorithm.to_string(),
        blocks.block_size.bytes(),
        format!("{order:?}").to_lowercase(),
        through / plain,
    );
    Ok(())
}

impl Plain {
    fn decompress(&mut self, compressed: &[u8], raw: &mut [u8]) -> Outcome<()> {
        let len = i32::try_from(raw.len())?;
        let found = match self {
            Self::Lz4 => lz4::block::decompress_to_buffer(compressed, Some(len), raw)?,
            Self::Zstd(context) => context.decompress_to_buffer(compressed, raw)?,
        };
        if found == raw.len() {
            Ok(())
        } else {
            Err("another length".into())
        }
    }
}

/// What is read: 4 KiB at random places, or everything block by block.
fn reads(zfile: &ZFile, order: Order) -> Vec<FileRange> {
    let len = zfile.len().0;
    match order {
        Order::Sequential => {
            let block = u64::from(zfile.header().blocks.block_size.bytes());
            (0..len.div_ceil(block))
                .map(|index| FileRange::new(index * block, block))
                .collect()
        }
        Order::Random => {
            let mut random = fastrand::Rng::with_seed(1);
            let places = len.div_ceil(READ_BYTES);
            // The same amount of decompressed data whatever the block size.
            (0..zfile.table().blocks())
                .map(|_| FileRange::new(random.u64(0..places) * READ_BYTES, READ_BYTES))
                .collect()
        }
    }
}

/// The compressed bytes and raw length of every block that the reads touch.
fn plan<'a>(sample: &'a Sample, reads: &[FileRange]) -> Outcome<Vec<(&'a [u8], usize)>> {
    reads
        .iter()
        .flat_map(|wanted| sample.zfile.pieces(*wanted))
        .map(|piece| {
            let stored = slice(&sample.file, piece.stored)?;
            let compressed = stored.get(..stored.len() - 4).ok_or("length")?;
            Ok((compressed, piece.raw_len as usize))
        })
        .collect()
}

fn slice(file: &[u8], range: FileRange) -> Outcome<&[u8]> {
    let (begin, end) = (range.offset.0.try_into()?, range.end().0.try_into()?);
    Ok(file.get(begin..end).ok_or("range")?)
}

/// Words in random order; a seed, so that every run has the same.
fn text() -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "block ", "device ", "layer ", "of ", "the ", "a ", "queue ", "sector\n", "0x7f3a ",
        "stack ", "== ", "return ", "if (", ") {\n", "image ", "commit ",
    ];
    let mut random = fastrand::Rng::with_seed(2);
    let mut text = Vec::with_capacity(RAW_BYTES + 16);
    while text.len() < RAW_BYTES {
        if random.u8(..) < 40 {
            text.extend(std::iter::repeat_with(|| random.u8(..)).take(8));
        } else {
            text.extend_from_slice(WORDS.get(random.usize(..16)).unwrap_or(&"").as_bytes());
        }
    }
    text.truncate(RAW_BYTES);
    text
}
