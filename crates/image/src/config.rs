//! The image configuration of overlaybd, `config.v1.json`: which layers, and which upper.
//!
//! | key | meaning here |
//! |---|---|
//! | `lowers` | sealed layers, bottom first: `file`, or `dir` with `overlaybd.commit` or else `overlaybd.sealed` in it |
//! | `lowers[].targetFile` | the target of a warp layer: the uncompressed original archive |
//! | `upper` | `data` and `index` of a log upper, `data` alone of a sparse one; `mode` may say which |
//! | `resultFile` | where the daemon writes `success` or `failed: ...` |
//! | `accelerationLayer` | true: the last lower is no layer but holds a trace for prefetching, and is left out |
//! | `repoBlobUrl`, `digest`, `size`, `uuid`, `targetDigest`, `gzipIndex`, `download`, `recordTracePath` | of remote layers; understood, not served yet |
//!
//! Relative paths count from the folder of the configuration. Empty texts are as good as absent. Keys that are unknown are
//! ignored, as overlaybd does; [`ImageConfig::unknown_keys`] names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// Files of a stack are numbered by a byte, and the upper is one of them.
const LOWERS_MAX: usize = 255;
/// Bytes of a configuration: 255 lowers of long paths and digests are below 4 MiB.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// A parsed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// Where it was read from; paths count from its folder.
    pub path: PathBuf,
    /// The lowers, bottom first.
    pub lowers: Vec<LowerConfig>,
    /// The upper, if the image has one.
    pub upper: Option<UpperConfig>,
    /// Where to write how opening went.
    pub result_file: Option<PathBuf>,
    unknown: Vec<String>,
}

/// A sealed layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerConfig {
    /// The file of the layer.
    pub file: PathBuf,
    /// The target, of a warp layer.
    pub target: Option<PathBuf>,
}

/// Where the data of a sealed layer is. The file does not say; the configuration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// In the layer's own file.
    Own,
    /// In the target too: a warp layer.
    Warp,
}

impl LowerConfig {
    /// Where its data is.
    #[must_use]
    pub const fn kind(&self) -> LayerKind {
        match self.target {
            None => LayerKind::Own,
            Some(_) => LayerKind::Warp,
        }
    }
}

/// An upper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpperConfig {
    /// A log upper, appending or hybrid: its header says which.
    Log {
        /// The data file.
        data: PathBuf,
        /// The index file.
        index: PathBuf,
    },
    /// A sparse upper.
    Sparse {
        /// The one file.
        data: PathBuf,
    },
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, expecting = "an object with lowers")]
struct Raw {
    repo_blob_url: String,
    lowers: Vec<RawLower>,
    upper: RawUpper,
    result_file: String,
    acceleration_layer: bool,
    record_trace_path: String,
    download: Value,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(
    rename_all = "camelCase",
    default,
    expecting = "a lower, which is an object with file or dir"
)]
struct RawLower {
    file: String,
    dir: String,
    digest: String,
    size: u64,
    uuid: String,
    repo_blob_url: String,
    target_file: String,
    target_digest: String,
    gzip_index: String,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(
    rename_all = "camelCase",
    default,
    expecting = "an upper, which is an object with data"
)]
struct RawUpper {
    mode: Option<Mode>,
    index: String,
    data: String,
    target: String,
    gzip_index: String,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum Mode {
    Sparse,
    LogStructured,
    HybridLogStructured,
}

impl ImageConfig {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// When it cannot be read, is no such configuration, names no layer at all, or one that cannot be served.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let length = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => {
                return Err(Error::WrongType {
                    path: path.to_owned(),
                    what: "no regular file",
                });
            }
            Err(error) => return Err(read_error(path, error)),
        };
        if length > CONFIG_BYTES_MAX {
            let detail = format!("{length} bytes; at most {CONFIG_BYTES_MAX} are read");
            return Err(config_error(path, detail));
        }
        let bytes = std::fs::read(path).map_err(|error| read_error(path, error))?;
        Self::parse(path, &bytes)
    }

    /// Parses the content of the file at `path`.
    ///
    /// # Errors
    /// As [`ImageConfig::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|error| config_error(path, format!("not a valid configuration: {error}")))?;
        let fault = |detail: String| config_error(path, detail);
        let unknown = unknown_keys(&raw);
        let folder = path.parent().unwrap_or(Path::new(""));
        if raw.acceleration_layer && !raw.record_trace_path.is_empty() {
            let text = "accelerationLayer and recordTracePath exclude each other; drop one";
            return Err(fault(text.to_owned()));
        }
        let mut lowers = raw.lowers;
        if raw.acceleration_layer {
            lowers.pop();
        }
        if lowers.len() > LOWERS_MAX {
            let text = format!(
                "{} lowers, and a stack has at most {LOWERS_MAX}; merge some with `blockyard image merge`",
                lowers.len()
            );
            return Err(fault(text));
        }
        let lowers = lowers
            .into_iter()
            .enumerate()
            .map(|(number, lower)| {
                resolve_lower(folder, lower)
                    .map_err(|why| fault(format!("lower {number} (counted from 0): {why}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let upper =
            resolve_upper(folder, raw.upper).map_err(|why| fault(format!("upper: {why}")))?;
        if lowers.is_empty() && upper.is_none() {
            let text = "names neither lowers nor an upper; an image needs at least one layer";
            return Err(fault(text.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            lowers,
            upper,
            result_file: resolve(folder, &raw.result_file),
            unknown,
        })
    }

    /// Every file that the image is made of: the configuration, the layers with their targets, the upper.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let lowers = self.lowers.iter();
        let lowers = lowers.flat_map(|lower| [Some(&lower.file), lower.target.as_ref()]);
        let upper = match &self.upper {
            None => [None, None],
            Some(UpperConfig::Sparse { data }) => [Some(data), None],
            Some(UpperConfig::Log { data, index }) => [Some(data), Some(index)],
        };
        let all = [Some(&self.path)].into_iter().chain(lowers).chain(upper);
        all.flatten().map(PathBuf::as_path)
    }

    /// Keys that are ignored because nobody knows them, as `lowers[2].key`.
    #[must_use]
    pub fn unknown_keys(&self) -> &[String] {
        &self.unknown
    }
}

fn resolve(folder: &Path, text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| folder.join(text))
}

fn resolve_lower(folder: &Path, lower: RawLower) -> Result<LowerConfig, String> {
    if !lower.gzip_index.is_empty() {
        return Err("gzipIndex: compressed targets of warp layers cannot be read yet; name the uncompressed archive as targetFile".to_owned());
    }
    if lower.target_file.is_empty() && !lower.target_digest.is_empty() {
        return Err(
            "targetDigest: targets in a registry cannot be read yet; name a local targetFile"
                .to_owned(),
        );
    }
    let file = match (resolve(folder, &lower.file), resolve(folder, &lower.dir)) {
        (Some(file), _) => Some(file),
        (None, Some(dir)) => ["overlaybd.commit", "overlaybd.sealed"]
            .into_iter()
            .map(|name| dir.join(name))
            .find(|file| file.exists()),
        (None, None) => None,
    };
    let Some(file) = file else {
        return Err(if lower.dir.is_empty() && lower.digest.is_empty() {
            "has none of file, dir and digest; name its file".to_owned()
        } else if lower.digest.is_empty() {
            format!(
                "{} has neither overlaybd.commit nor overlaybd.sealed in it",
                lower.dir
            )
        } else {
            format!(
                "{} is not on this host, and layers in a registry ({}) cannot be read yet; name a local file or dir",
                lower.digest,
                if lower.repo_blob_url.is_empty() {
                    "repoBlobUrl"
                } else {
                    &lower.repo_blob_url
                }
            )
        });
    };
    Ok(LowerConfig {
        file,
        target: resolve(folder, &lower.target_file),
    })
}

fn resolve_upper(folder: &Path, upper: RawUpper) -> Result<Option<UpperConfig>, String> {
    if !upper.target.is_empty() || !upper.gzip_index.is_empty() {
        return Err("target and gzipIndex: warp uppers cannot be written; commit the layer and list it as a lower".to_owned());
    }
    let data = resolve(folder, &upper.data);
    let index = resolve(folder, &upper.index);
    let is_sparse = upper.mode == Some(Mode::Sparse);
    match (data, index) {
        (None, None) => Ok(None),
        (Some(data), None) if is_sparse || upper.mode.is_none() => {
            Ok(Some(UpperConfig::Sparse { data }))
        }
        // The reference asks for an index file of a sparse upper too, and leaves it empty.
        (Some(data), Some(_)) if is_sparse => Ok(Some(UpperConfig::Sparse { data })),
        (Some(data), Some(index)) => Ok(Some(UpperConfig::Log { data, index })),
        (Some(_), None) => Err("index is missing; a log upper needs data and index".to_owned()),
        (None, Some(_)) => Err("data is missing; an upper needs at least data".to_owned()),
    }
}

fn unknown_keys(raw: &Raw) -> Vec<String> {
    let mut keys: Vec<String> = raw.other.keys().cloned().collect();
    for (number, lower) in raw.lowers.iter().enumerate() {
        let named = lower.other.keys();
        keys.extend(named.map(|key| format!("lowers[{number}].{key}")));
    }
    keys.extend(raw.upper.other.keys().map(|key| format!("upper.{key}")));
    keys
}

fn config_error(path: &Path, detail: String) -> Error {
    Error::Config {
        path: path.to_owned(),
        detail,
    }
}

fn read_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::Missing {
            path: path.to_owned(),
            hint: "; it should be an image configuration (JSON)".to_owned(),
        },
        std::io::ErrorKind::PermissionDenied => Error::Permission {
            path: path.to_owned(),
            access: "reading",
        },
        _ => Error::io("read", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ImageConfig, Error> {
        ImageConfig::parse(Path::new("/images/a/config.json"), text.as_bytes())
    }

    #[test]
    fn paths_count_from_the_folder_and_unknown_keys_are_named() {
        let config = parse(
            r#"{"repoBlobUrl": "", "lowers": [{"file": "l0", "size": 7, "shape": 1}, {"file": "/x/l1", "targetFile": "t"}],
                "upper": {"index": "u.index", "data": "u.data", "gzipIndex": ""}, "resultFile": "result", "color": {"a": 1}}"#,
        )
        .unwrap();
        let lower = |file: &str, target: Option<&str>| LowerConfig {
            file: file.into(),
            target: target.map(Into::into),
        };
        let want = [
            lower("/images/a/l0", None),
            lower("/x/l1", Some("/images/a/t")),
        ];
        assert_eq!(config.lowers, want);
        let upper = UpperConfig::Log {
            data: "/images/a/u.data".into(),
            index: "/images/a/u.index".into(),
        };
        assert_eq!(config.upper, Some(upper));
        assert_eq!(config.result_file, Some("/images/a/result".into()));
        let files: Vec<_> = config.files().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/images/a/config.json",
                "/images/a/l0",
                "/x/l1",
                "/images/a/t",
                "/images/a/u.data",
                "/images/a/u.index",
            ]
        );
        assert_eq!(config.unknown_keys(), ["color", "lowers[0].shape"]);
    }

    #[test]
    fn an_upper_is_what_its_mode_and_files_say() {
        let upper = |text: &str| parse(&format!(r#"{{"upper": {text}}}"#));
        let sparse = Some(UpperConfig::Sparse {
            data: "/images/a/d".into(),
        });
        let is_sparse = |text: &str| upper(text).unwrap().upper == sparse;
        assert!(is_sparse(r#"{"data": "d"}"#));
        assert!(is_sparse(r#"{"data": "d", "mode": "sparse"}"#));
        assert!(is_sparse(
            r#"{"data": "d", "index": "i", "mode": "sparse"}"#
        ));
        for mode in ["logStructured", "hybridLogStructured"] {
            let text = format!(r#"{{"data": "d", "index": "i", "mode": "{mode}"}}"#);
            let config = upper(&text).unwrap();
            assert!(matches!(config.upper, Some(UpperConfig::Log { .. })));
            let text = format!(r#"{{"data": "d", "mode": "{mode}"}}"#);
            assert!(
                upper(&text)
                    .unwrap_err()
                    .to_string()
                    .contains("index is missing")
            );
        }
    }

    #[test]
    fn each_bad_configuration_says_what_is_wrong() {
        let many = format!(
            r#"{{"lowers": [{}]}}"#,
            vec![r#"{"file": "a"}"#; 256].join(",")
        );
        let cases = [
            ("", "not a valid configuration"),
            ("[]", "not a valid configuration"),
            ("{}", "neither lowers nor an upper"),
            (r#"{"lowers": [{}]}"#, "none of file, dir and digest"),
            (
                r#"{"lowers": [{"dir": "none"}]}"#,
                "neither overlaybd.commit nor",
            ),
            (
                r#"{"lowers": [{"digest": "sha256:1"}]}"#,
                "layers in a registry",
            ),
            (
                r#"{"lowers": [{"file": "a", "gzipIndex": "g"}]}"#,
                "gzipIndex",
            ),
            (r#"{"upper": {"index": "i"}}"#, "data is missing"),
            (
                r#"{"upper": {"data": "d", "mode": "other"}}"#,
                "unknown variant",
            ),
            (
                r#"{"accelerationLayer": true, "recordTracePath": "t", "lowers": [{"file": "a"}]}"#,
                "exclude each other",
            ),
            (&many, "256 lowers"),
        ];
        for (text, part) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains("/images/a/config.json"), "{error}");
        }
    }

    #[test]
    fn the_acceleration_layer_is_no_layer() {
        let text = r#"{"accelerationLayer": true, "lowers": [{"file": "a"}, {"dir": "trace"}]}"#;
        let config = parse(text).unwrap();
        assert_eq!(config.lowers.len(), 1);
    }
}
