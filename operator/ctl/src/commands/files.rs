//! Files that agents load by `files[].from.storeKey`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cicada_store::AgentStore;
use serde_json::json;

use super::claim::confirm;
use super::export::place_file;
use super::restored::private_folder;
use super::sqlite_file::regular_file;
use crate::args::{FilesArgs, FilesCommand, Target};
use crate::exit::{Missing, UsageError};
use crate::output::{Grid, bytes, note};
use crate::progress;
use crate::target::did_you_mean;

/// `files put`, `get`, `delete` and `list`.
pub(super) async fn run(args: FilesArgs) -> anyhow::Result<()> {
    match args.command {
        FilesCommand::Put { target, file, key } => put(&target, &file, key).await,
        FilesCommand::Get { target, key, to } => get(&target, &key, to).await,
        FilesCommand::Delete { target, key, yes } => {
            let store = target.open().await?;
            let size = size(&store, &key).await?;
            confirm(&format!("Remove {key} ({}) from {}files/?", bytes(size), store.location()), yes)?;
            store.delete_file(&key).await?;
            note(&format!("{key}: removed"));
            Ok(())
        }
        FilesCommand::List { target, output } => {
            let mut grid = Grid::new(&["key", "bytes", "modified"]);
            for file in target.open().await?.list_files().await? {
                grid.push([json!(file.key), json!(file.size), json!(file.modified.to_string())]);
            }
            grid.print(output.format)
        }
    }
}

async fn put(target: &Target, file: &Path, key: Option<String>) -> anyhow::Result<()> {
    let key = match key {
        Some(key) => key,
        None => {
            file.file_name().and_then(|n| n.to_str()).context("the file has no name; give --key")?.to_owned()
        }
    };
    let size = bytes(regular_file(file)?);
    let store = target.open().await?;
    progress::wait("put", &size, store.put_file(&key, file)).await?;
    note(&format!("{key}: {size} put into {}files/", store.location()));
    Ok(())
}

async fn get(target: &Target, key: &str, to: Option<PathBuf>) -> anyhow::Result<()> {
    let to = to.unwrap_or_else(|| PathBuf::from(key.rsplit('/').next().unwrap_or(key)));
    if to.symlink_metadata().is_ok() {
        bail!(UsageError(format!("{} is there already; --to names another file", to.display())));
    }
    let store = target.open().await?;
    let size = size(&store, key).await?;
    let folder = private_folder()?;
    let file = folder.path().join("file");
    let bar = progress::bar(key, size);
    progress::follow(&bar, &file, store.fetch_file(key, &file, u64::MAX)).await?;
    bar.finish_and_clear();
    let size = place_file(&file, &to)?;
    note(&format!("{}: {}", to.display(), bytes(size)));
    Ok(())
}

/// Bytes of a file that is there.
async fn size(store: &AgentStore, key: &str) -> anyhow::Result<u64> {
    let files = store.list_files().await?;
    if let Some(file) = files.iter().find(|f| f.key == key) {
        return Ok(file.size);
    }
    let known: Vec<String> = files.into_iter().map(|f| f.key).collect();
    bail!(Missing(format!("no file {key} in {}files/{}", store.location(), did_you_mean(key, &known))))
}
