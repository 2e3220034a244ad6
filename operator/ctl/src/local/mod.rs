//! `cicadactl local`: the agents of a folder on this machine, without a cluster.

mod child;
mod secrets;
mod summary;
mod world;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use cicada_contract::plan::StoreConfig;
use cicada_crds::store::{Directory, S3, Store};
use cicada_operator_core::spec::OperatorDefaults;
use jiff::Timestamp;
use serde_json::json;

use crate::args::{Format, LocalArgs};
use crate::local::world::{Settings, World};
use crate::manifest::{Folder, read_folder};
use crate::output;

/// Folder below DIR for everything that `local` writes.
const STATE: &str = ".cicada";
/// How often the folder is looked at for edits.
const RELOAD: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    let folder = read_folder(&args.dir)?;
    let state = absolute(&args.dir)?.join(STATE);
    std::fs::create_dir_all(&state).with_context(|| format!("can't make {}", state.display()))?;
    let defaults = defaults(&args, &state)?;
    write_config_maps(&state, &folder)?;
    let mut worlds = worlds(&args, &folder, &defaults, &state);
    if args.once {
        once(&args, &folder, &mut worlds).await
    } else {
        forever(&args, &defaults, &state, worlds).await
    }
}

fn absolute(dir: &Path) -> anyhow::Result<std::path::PathBuf> {
    dir.canonicalize().with_context(|| format!("can't find the folder {}", dir.display()))
}

fn defaults(args: &LocalArgs, state: &Path) -> anyhow::Result<OperatorDefaults> {
    let store = match &args.store {
        None => Store {
            directory: Some(Directory { path: state.join("store").display().to_string(), claim_name: None }),
            s3: None,
        },
        Some(url) => match cicada_store::parse_url(url, args.endpoint.as_deref(), args.region.as_deref())? {
            StoreConfig::Directory { path, claim_name } => {
                Store { directory: Some(Directory { path, claim_name }), s3: None }
            }
            StoreConfig::S3(s3) => Store {
                directory: None,
                s3: Some(S3 {
                    bucket: s3.bucket,
                    prefix: Some(s3.prefix),
                    endpoint: s3.endpoint,
                    region: s3.region,
                    force_path_style: Some(s3.force_path_style),
                    ..S3::default()
                }),
            },
        },
    };
    Ok(OperatorDefaults {
        cluster: "local".into(),
        store: Some(store),
        config_maps_dir: state.join("configmaps").display().to_string(),
        local_dir: Some(absolute(&args.dir)?.display().to_string()),
        ..OperatorDefaults::default()
    })
}

/// ConfigMaps become files, as a pod mounts them.
fn write_config_maps(state: &Path, folder: &Folder) -> anyhow::Result<()> {
    for (name, values) in &folder.config_maps {
        let dir = state.join("configmaps").join(name);
        std::fs::create_dir_all(&dir)?;
        for (key, bytes) in values {
            std::fs::write(dir.join(key), bytes)?;
        }
    }
    Ok(())
}

fn worlds(args: &LocalArgs, folder: &Folder, defaults: &OperatorDefaults, state: &Path) -> Vec<World> {
    let new = |agent: &cicada_crds::PersistentAgent| {
        let settings = Settings {
            defaults: defaults.clone(),
            folder: state.join("run"),
            secrets: folder.secrets.clone(),
            model_url: args.model_url.clone(),
            quiet: args.output != Format::Table,
        };
        World::new(agent.clone(), settings)
    };
    folder.agents.iter().map(new).collect()
}

/// One cycle of each agent that is not suspended, then the cycles of the folder.
async fn once(args: &LocalArgs, folder: &Folder, worlds: &mut [World]) -> anyhow::Result<ExitCode> {
    let mut succeeded = true;
    let mut reports = vec![];
    let token = format!("local-{}", Timestamp::now().as_millisecond());
    for world in worlds.iter_mut() {
        if world.agent.spec.suspend == Some(true) {
            output::note(&format!("{} is suspended", world.path()));
            continue;
        }
        world.request(&token);
        let (_, mut ended) = world.settle().await?;
        for cycle in cycles_of(folder, world) {
            world.add_cycle(cycle);
            ended.extend(world.settle().await?.1);
        }
        if let Some(stalled) = world.stalled() {
            output::problem(&stalled);
        }
        succeeded &= world.all_succeeded() && !ended.is_empty();
        reports.extend(ended.iter().map(|e| {
            json!({"agent": world.path(), "milliseconds": u64::try_from(e.took.as_millis()).unwrap_or(u64::MAX), "report": e.report})
        }));
    }
    if args.output != Format::Table {
        output::print_document(&reports.into(), args.output)?;
    }
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cycles_of(folder: &Folder, world: &World) -> Vec<cicada_crds::AgentCycle> {
    let name = world.agent.metadata.name.clone().unwrap_or_default();
    folder.cycles.iter().filter(|c| c.spec.agent_ref.name == name).cloned().collect()
}

/// Runs until Ctrl-C, each agent by itself; the folder's manifests are read again when they change.
async fn forever(
    args: &LocalArgs,
    defaults: &OperatorDefaults,
    state: &Path,
    worlds: Vec<World>,
) -> anyhow::Result<ExitCode> {
    let folder = read_folder(&args.dir)?;
    let (changed, _) = tokio::sync::watch::channel(());
    let (stop, _) = tokio::sync::watch::channel(false);
    output::note(&format!("running {} agents of {}; Ctrl-C ends", worlds.len(), args.dir.display()));
    let mut tasks = tokio::task::JoinSet::new();
    let shared = std::sync::Arc::new(tokio::sync::RwLock::new(folder));
    let mut known = BTreeSet::new();
    for world in worlds {
        known.insert(world.path());
        tasks.spawn(live(world, shared.clone(), changed.subscribe(), stop.subscribe()));
    }
    let mut stamp = stamp_of(&args.dir);
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            () = tokio::time::sleep(RELOAD) => {
                let newest = stamp_of(&args.dir);
                if newest == stamp {
                    continue;
                }
                stamp = newest;
                match read_folder(&args.dir) {
                    Ok(folder) => {
                        write_config_maps(state, &folder)?;
                        for world in self::worlds(args, &folder, defaults, state) {
                            if known.insert(world.path()) {
                                tasks.spawn(live(world, shared.clone(), changed.subscribe(), stop.subscribe()));
                            }
                        }
                        *shared.write().await = folder;
                        output::note("manifests read again");
                        changed.send_replace(());
                    }
                    Err(error) => output::problem(&format!("{error:#}; the earlier manifests stay in force")),
                }
            }
        }
    }
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    Ok(ExitCode::SUCCESS)
}

/// One agent until the end.
async fn live(
    mut world: World,
    folder: std::sync::Arc<tokio::sync::RwLock<Folder>>,
    mut changed: tokio::sync::watch::Receiver<()>,
    mut stop: tokio::sync::watch::Receiver<bool>,
) {
    loop {
        {
            let folder = folder.read().await;
            let path = world.path();
            let agent = folder.agents.iter().find(|a| {
                let namespace = a.metadata.namespace.as_deref().unwrap_or("default");
                format!("{namespace}/{}", a.metadata.name.as_deref().unwrap_or_default()) == path
            });
            let Some(agent) = agent.cloned() else {
                output::note(&format!("{path}: its manifest is gone; it stops, its memory stays"));
                return;
            };
            world.edit(agent);
            for cycle in cycles_of(&folder, &world) {
                world.add_cycle(cycle);
            }
        }
        let look_again = match world.settle().await {
            Ok((at, _)) => at,
            Err(error) => {
                output::problem(&format!("{error:#}"));
                Timestamp::now() + Duration::from_secs(60)
            }
        };
        let wait = Duration::try_from(look_again.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => return,
            _ = changed.changed() => {}
            () = tokio::time::sleep(wait.max(Duration::from_millis(200))) => {}
        }
    }
}

/// Names and times of the folder's manifests: another value means that something was edited.
fn stamp_of(dir: &Path) -> Vec<(std::path::PathBuf, Option<std::time::SystemTime>)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter(|e| e.path().extension().is_some_and(|x| x == "yaml" || x == "yml"))
        .map(|e| (e.path(), e.metadata().and_then(|m| m.modified()).ok()))
        .collect();
    all.sort();
    all
}
