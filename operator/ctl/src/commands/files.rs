//! Files that agents load by `files[].from.storeKey`.

use anyhow::Context;
use serde_json::json;

use crate::args::{FilesArgs, FilesCommand};
use crate::output::{Grid, bytes, note};

/// `files put` and `files list`.
pub(super) async fn run(args: FilesArgs) -> anyhow::Result<()> {
    match args.command {
        FilesCommand::Put { target, file, key } => {
            let key = match key {
                Some(key) => key,
                None => file
                    .file_name()
                    .and_then(|n| n.to_str())
                    .context("the file has no name; give --key")?
                    .to_owned(),
            };
            let size =
                std::fs::metadata(&file).with_context(|| format!("can't read {}", file.display()))?.len();
            let store = target.open().await?;
            store.put_file(&key, &file).await?;
            note(&format!("{key}: {} put into {}files/", bytes(size), store.location()));
            Ok(())
        }
        FilesCommand::List { target, output } => {
            let mut grid = Grid::new(&["key", "bytes", "modified"]);
            for file in target.open().await?.list_files().await? {
                grid.push([json!(file.key), json!(file.size), json!(file.modified.to_string())]);
            }
            grid.print(output)
        }
    }
}
