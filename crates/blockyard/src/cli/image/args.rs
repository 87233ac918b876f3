//! The arguments of `blockyard image`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use api::v1::ByteSize;
use clap::{Args, Subcommand, ValueEnum};

/// What to do with an image.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Show what a layer or an image is: wrapper, compression, size, uuids, records
    Info {
        /// A layer's file, or the JSON configuration of an image
        file: PathBuf,
    },
    /// Check every checksum, every block and every record of a layer, or of all layers of an image
    ///
    /// A layer that is not compressed has no checksums: damage in its data cannot be seen, and the answer says so.
    Verify {
        /// A layer's file, or the JSON configuration of an image
        file: PathBuf,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// List the records of a layer's index: offset, length, offset in the file (all in sectors), zeroed, tag
    Records {
        /// A layer's file
        file: PathBuf,
    },
    /// Write the disk of an image: all layers flattened, as plain bytes
    Export {
        /// The image, as overlaybd:CONFIG.json or CONFIG.json
        image: String,
        /// The file to make, with holes for zeros [default: standard output]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print the SHA-256 of the disk only
        #[arg(long, conflicts_with = "output")]
        sha256: bool,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Make an empty upper
    Create(CreateArgs),
    /// Make a sealed layer of an upper, without what was overwritten
    Commit {
        #[command(flatten)]
        upper: UpperArgs,
        /// The layer to make
        output: PathBuf,
        #[command(flatten)]
        layer: LayerArgs,
        #[command(flatten)]
        packing: PackingArgs,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Turn the data file of an upper into a sealed layer, in place
    Seal {
        #[command(flatten)]
        upper: UpperArgs,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Make one layer of all lowers of an image
    Merge {
        /// The image, as overlaybd:CONFIG.json or CONFIG.json
        image: String,
        /// The layer to make
        output: PathBuf,
        /// The upper too
        #[arg(long)]
        flatten: bool,
        #[command(flatten)]
        layer: LayerArgs,
        #[command(flatten)]
        packing: PackingArgs,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Compress a file of any content to a ZFile
    Compress {
        /// The file
        file: PathBuf,
        /// The file to make
        output: PathBuf,
        #[command(flatten)]
        packing: PackingArgs,
    },
    /// Write what is in a ZFile or an archive
    Decompress {
        /// The file
        file: PathBuf,
        /// The file to make
        output: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// Make a sealed layer of a raw disk, without its holes and zeros
    Import {
        /// The disk, a file of whole sectors
        raw: PathBuf,
        /// The layer to make
        output: PathBuf,
        #[command(flatten)]
        layer: LayerArgs,
        #[command(flatten)]
        packing: PackingArgs,
    },
    /// Grow the disk of an upper
    Resize {
        #[command(flatten)]
        upper: UpperArgs,
        /// The new size
        #[arg(long)]
        size: ByteSize,
        #[command(flatten)]
        open: OpenArgs,
    },
}

/// How strict opening is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OpenArgs {
    /// Stack layers on other parents than they name, as overlaybd does
    #[arg(long)]
    pub(crate) ignore_parent: bool,
    /// Drop records at the end of a log upper that point behind its data
    #[arg(long)]
    pub(crate) drop_lost_records: bool,
}

/// Which upper.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpperArgs {
    /// The image whose upper is meant (overlaybd:CONFIG.json or CONFIG.json), or the data file of an upper
    pub(crate) upper: String,
    /// The index file, of a log upper that is named by its data file
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
}

/// What a new layer says about itself.
#[derive(Clone, Debug, Args)]
pub(crate) struct LayerArgs {
    /// Its uuid [default: that of the upper]
    #[arg(long)]
    pub(crate) uuid: Option<String>,
    /// The uuid of the layer below [default: the one that the upper names]
    #[arg(long, value_name = "UUID")]
    pub(crate) parent: Option<String>,
    /// Free text of at most 255 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_tag: Option<String>,
}

/// How a new file is packed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PackingArgs {
    /// Compress it [compress: lz4 unless given]
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) zfile: Option<AlgorithmArg>,
    /// Bytes that are compressed together, a power of two [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_size: Option<u32>,
    /// No checksum of each block
    #[arg(long)]
    pub(crate) no_checksums: bool,
    /// Threads that compress [default: one for each CPU]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Wrap it in an archive, as registries want it
    #[arg(long)]
    pub(crate) tar: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AlgorithmArg {
    /// Fast.
    Lz4,
    /// Small.
    Zstd,
}

/// The arguments of `create`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CreateArgs {
    /// The data file
    pub(crate) data: PathBuf,
    /// The index file; a sparse upper has none
    pub(crate) index: Option<PathBuf>,
    /// How it is written to
    #[arg(long, default_value = "log")]
    pub(crate) mode: ModeArg,
    /// Size of the disk [default: that of what is below]
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// Its uuid
    #[arg(long)]
    pub(crate) uuid: Option<String>,
    /// The uuid of the layer that it is for
    #[arg(long, value_name = "UUID")]
    pub(crate) parent: Option<String>,
}

/// How an upper is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Every write appends.
    Log,
    /// A write to sectors that it has overwrites them.
    Hybrid,
    /// One sparse file as large as the disk.
    Sparse,
}
