//! Calls of cargo, and what it tells about the workspace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The root of the workspace that this program was built in.
pub(crate) fn workspace_root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// A cargo command at the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(workspace_root())
        .stdin(Stdio::null());
    command
}

/// Runs the command with its output shown; an error when it fails.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    let status = command
        .status()
        .with_context(|| format!("start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

fn line_of(command: &Command) -> String {
    std::iter::once("cargo".into())
        .chain(command.get_args().map(|word| word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The workspace as `cargo metadata` tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Packages of the workspace.
    pub(crate) packages: Vec<Package>,
    /// Where builds go.
    pub(crate) target_directory: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency, of whichever kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for an ordinary one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// Something that is built.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Self> {
        let output = cargo(&["metadata", "--format-version=1", "--no-deps"])
            .stderr(Stdio::inherit())
            .output()
            .context("start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata ended with {}", output.status);
        }
        serde_json::from_slice(&output.stdout).context("read cargo metadata")
    }

    /// Names of integration tests for which `wanted` holds, each once.
    pub(crate) fn integration_tests(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<String> = self
            .packages
            .iter()
            .flat_map(|package| &package.targets)
            .filter(|target| target.kind.iter().any(|kind| kind == "test") && wanted(&target.name))
            .map(|target| target.name.clone())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A program that cargo built.
#[derive(Debug, Deserialize)]
pub(crate) struct Artifact {
    pub(crate) manifest_path: PathBuf,
    pub(crate) target: ArtifactTarget,
    pub(crate) executable: Option<PathBuf>,
}

/// What the program was built from.
#[derive(Debug, Deserialize)]
pub(crate) struct ArtifactTarget {
    pub(crate) name: String,
}

/// Builds and returns the programs that came of it.
pub(crate) fn build(arguments: &[&str]) -> Result<Vec<Artifact>> {
    let mut command = cargo(arguments);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start `{}`", line_of(&command)))?;
    if !output.status.success() {
        bail!("`{}` ended with {}", line_of(&command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains("\"compiler-artifact\""))
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.executable.is_some())
        .collect())
}

/// Builds the package's binary of the same name and returns where it is.
pub(crate) fn build_binary(package: &str, profile: &str) -> Result<PathBuf> {
    build_program(package, ["--bin", package], profile)
}

/// Builds one integration test and returns where it is.
pub(crate) fn build_test(package: &str, name: &str, profile: &str) -> Result<PathBuf> {
    build_program(package, ["--test", name], profile)
}

/// Builds one example and returns where it is.
pub(crate) fn build_example(package: &str, name: &str, profile: &str) -> Result<PathBuf> {
    build_program(package, ["--example", name], profile)
}

fn build_program(package: &str, [kind, name]: [&str; 2], profile: &str) -> Result<PathBuf> {
    let which = ["build", "--package", package, kind, name];
    build(&[&which[..], &["--profile", profile]].concat())?
        .into_iter()
        .filter(|artifact| artifact.target.name == name)
        .find_map(|artifact| artifact.executable)
        .with_context(|| format!("cargo built no program {name} of {package}"))
}
