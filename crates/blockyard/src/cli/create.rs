//! `blockyard create`.

use api::Creation;
use api::v1::{Code, Device, DeviceRequest, Problem};

use super::Daemon;
use super::args::CreateArgs;
use crate::output::{self, Format};

pub(super) async fn run(args: CreateArgs, daemon: &Daemon) -> Result<(), Problem> {
    let request = DeviceRequest {
        spec: absolute(args.spec)?,
        size: args.size,
        read_only: args.read_only.then_some(true),
        queues: args.queues,
        depth: args.depth,
    };
    let creation = daemon.client.create(&args.name, &request).await?;
    let device = match creation {
        Creation::Created(device) | Creation::Existing(device) => device,
    };
    match daemon.format {
        Format::Json => output::print_json(&device),
        Format::Human => output::print(&format!("{}\n", path(&device))),
    }
}

fn path(device: &Device) -> &str {
    device.path.as_deref().unwrap_or(&device.link)
}

/// The spec with an absolute path: the daemon has another working directory. Symbolic links stay as they are, because
/// what they point at is for the daemon to see.
fn absolute(spec: String) -> Result<String, Problem> {
    let has_path = |kind: &&str| ["raw", "overlaybd"].contains(kind);
    let parts = spec.split_once(':');
    let Some((kind, path)) = parts.filter(|(kind, path)| has_path(kind) && !path.is_empty()) else {
        return Ok(spec);
    };
    let unusable = |why: &str| {
        Problem::new(
            Code::InvalidSpec,
            format!("the path in {spec} cannot be made absolute: {why}"),
            "give an absolute path in UTF-8",
        )
        .about(spec.clone())
    };
    let absolute = std::path::absolute(path).map_err(|error| unusable(&error.to_string()))?;
    let absolute = absolute
        .to_str()
        .ok_or_else(|| unusable("it is not UTF-8"))?;
    Ok(format!("{kind}:{absolute}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_paths_change() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        for (spec, expected) in [
            ("raw:/srv/a.img", "raw:/srv/a.img".to_owned()),
            ("raw:a.img", format!("raw:{here}/a.img")),
            ("raw:./b/../a.img", format!("raw:{here}/b/../a.img")),
            ("raw:", "raw:".to_owned()),
            ("overlaybd:i.json", format!("overlaybd:{here}/i.json")),
            ("null:8G", "null:8G".to_owned()),
            ("tape:a", "tape:a".to_owned()),
        ] {
            assert_eq!(absolute(spec.to_owned()).unwrap(), expected);
        }
    }
}
