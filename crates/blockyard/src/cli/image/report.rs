//! What a layer or an image is, and whether it is whole.

use std::path::Path;

use api::v1::{Code, Problem};
use image::offline::{self, BlobFacts, Content, FormFacts, LayerFacts, UpperFacts, Verdict};
use image::{Blob, ImageConfig, LayerKind, LostRecords, OpenOptions, ParentCheck, Upper, View};
use serde::Serialize;

use super::args::OpenArgs;
use super::bar::Bar;
use super::opening::{is_config, open_blob, options};
use super::problem;
use crate::output::{self, Format};

/// An image, or one layer.
#[derive(Serialize)]
struct Facts {
    /// Size of the disk in bytes; of a single layer what it says. None of a file that is no layer.
    disk_bytes: Option<u64>,
    /// The layers, bottom first.
    layers: Vec<BlobFacts>,
    upper: Option<UpperFacts>,
    /// Keys of the configuration that are ignored.
    unknown_keys: Vec<String>,
}

pub(super) fn info(file: &Path, format: Format) -> Result<(), Problem> {
    let failed = |error: image::Error| problem::of(&error);
    let facts = if is_config(file) {
        let config = ImageConfig::read(file).map_err(failed)?;
        let view = View::open(
            &config,
            OpenOptions {
                parents: ParentCheck::Ignore,
                lost: LostRecords::Drop,
            },
        );
        let view = view.map_err(failed)?;
        let mut layers = Vec::new();
        for lower in &config.lowers {
            let blob = open_blob(&lower.file)?;
            layers
                .push(offline::describe_blob(&blob, Content::Layer(lower.kind())).map_err(failed)?);
        }
        Facts {
            disk_bytes: Some(view.size().len_bytes().0),
            layers,
            upper: view.upper().map(offline::describe_upper),
            unknown_keys: config.unknown_keys().to_vec(),
        }
    } else {
        let layer = offline::describe_blob(&open_blob(file)?, Content::Any).map_err(failed)?;
        Facts {
            disk_bytes: layer.layer.as_ref().map(|layer| layer.virtual_bytes),
            layers: vec![layer],
            upper: None,
            unknown_keys: Vec::new(),
        }
    };
    match format {
        Format::Json => output::print_json(&facts),
        Format::Human => output::print(&text(&facts)),
    }
}

fn text(facts: &Facts) -> String {
    let mut text = match facts.disk_bytes {
        Some(bytes) => format!("disk: {bytes} bytes\n"),
        None => String::new(),
    };
    for layer in &facts.layers {
        let form = match &layer.form {
            FormFacts::Plain => "not compressed".to_owned(),
            FormFacts::Zfile {
                algorithm,
                block_bytes,
                checksums,
                blocks,
                content_bytes,
            } => format!(
                "ZFile, {algorithm}, {blocks} blocks of {block_bytes} bytes {} checksums, {content_bytes} bytes of content",
                if *checksums { "with" } else { "without" }
            ),
        };
        let wrapper = if layer.payload_offset > 0 {
            ", in an archive"
        } else {
            ""
        };
        text += &format!(
            "file {}: {} bytes{wrapper}, {form}\n{}\n",
            layer.path,
            layer.file_bytes,
            match &layer.layer {
                Some(layer) => layer_text(layer),
                None => "  its content is no layer".to_owned(),
            }
        );
    }
    if let Some(upper) = &facts.upper {
        text += &format!(
            "upper {}: {}, {} lost records\n{}\n",
            upper.path,
            upper.mode,
            upper.records_dropped,
            layer_text(&upper.layer)
        );
    }
    for key in &facts.unknown_keys {
        text += &format!("ignored key: {key}\n");
    }
    text
}

fn layer_text(layer: &LayerFacts) -> String {
    let name = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "none".to_owned());
    format!(
        "  size {} bytes, uuid {}, parent {}, tag {:?}\n  {} records: {} bytes of data, {} bytes zeroed",
        layer.virtual_bytes,
        name(&layer.uuid),
        name(&layer.parent_uuid),
        layer.user_tag,
        layer.records,
        layer.data_bytes,
        layer.zeroed_bytes
    )
}

/// The index of a layer, a record a line.
pub(super) fn records(blob: &Blob) -> Result<(), Problem> {
    let layer = image::read_layer(blob, LayerKind::Own).map_err(|error| problem::of(&error))?;
    let mut text = String::new();
    for segment in layer.index.segments() {
        text += &format!("{segment}\n");
    }
    output::print(&text)
}

#[derive(Serialize)]
struct Checked {
    /// How much is wrong.
    count: u64,
    /// What is, the first hundred.
    findings: Vec<String>,
    /// Files with data that no checksum covers.
    uncovered: Vec<String>,
    /// ZFiles whose content is no layer.
    no_layers: Vec<String>,
}

pub(super) fn verify(
    file: &Path,
    open: OpenArgs,
    format: Format,
    bar: &mut Bar,
) -> Result<(), Problem> {
    let failed = |error: image::Error| problem::of(&error);
    let mut checked = Checked {
        count: 0,
        findings: Vec::new(),
        uncovered: Vec::new(),
        no_layers: Vec::new(),
    };
    let mut add = |path: &Path, verdict: Verdict| {
        checked.count += verdict.count;
        let found = verdict.findings.into_iter().map(|finding| finding.what);
        checked.findings.extend(found);
        if !verdict.is_covered {
            checked.uncovered.push(path.display().to_string());
        }
        if !verdict.is_layer {
            checked.no_layers.push(path.display().to_string());
        }
    };
    if is_config(file) {
        let config = ImageConfig::read(file).map_err(failed)?;
        for lower in &config.lowers {
            let blob = open_blob(&lower.file)?;
            let verdict =
                offline::check(&blob, Content::Layer(lower.kind()), bar).map_err(failed)?;
            add(&lower.file, verdict);
        }
        if let Some(upper) = &config.upper {
            let upper = Upper::open_to_read(upper, options(open).lost).map_err(failed)?;
            let verdict = Verdict {
                is_layer: true,
                ..Verdict::default()
            };
            add(upper.data().path(), verdict);
        }
        // The parents, and whether all belongs together.
        View::open(&config, options(open)).map_err(failed)?;
    } else {
        let verdict = offline::check(&open_blob(file)?, Content::Any, bar).map_err(failed)?;
        add(file, verdict);
    }
    match format {
        Format::Json => output::print_json(&checked)?,
        Format::Human => {
            let mut text = String::new();
            for finding in &checked.findings {
                text += &format!("damaged: {finding}\n");
            }
            for path in &checked.uncovered {
                text += &format!("no checksums: damage in the data of {path} cannot be seen\n");
            }
            for path in &checked.no_layers {
                text += &format!("the content of {path} is no layer\n");
            }
            text += &format!("{}\n", counted(checked.count, "finding", "findings"));
            output::print(&text)?;
        }
    }
    if checked.count == 0 {
        return Ok(());
    }
    let damaged = counted(checked.count, "place is damaged", "places are damaged");
    let detail = format!("{}: {damaged}", file.display());
    let advice = "get the layer again from where it came";
    Err(Problem::new(Code::SourceInvalid, detail, advice))
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
