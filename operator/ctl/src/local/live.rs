//! `local` without `--once`: every agent of the folder by itself, until Ctrl-C.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;

use super::inbox::Inbox;
use super::world::World;
use super::{Local, cycles_of, is};
use crate::interrupt::stopped;
use crate::manifest::{Folder, files, read_folder};
use crate::output;

/// How often the folder is looked at for edits.
const RELOAD: Duration = Duration::from_secs(2);
/// How often an agent looks for requests, annotations and messages.
const LOOK: Duration = Duration::from_secs(2);

/// What the agents share.
#[derive(Clone)]
struct Shared {
    folder: Arc<RwLock<Folder>>,
    changed: watch::Sender<()>,
    stop: watch::Sender<bool>,
}

/// Runs until SIGINT or SIGTERM; the folder's manifests are read again when they change.
pub(super) async fn forever(local: &Local, folder: Folder) -> anyhow::Result<ExitCode> {
    let mut stamp = stamp_of(&local.args.dir);
    let worlds = local.worlds(&folder);
    output::note(&format!(
        "running {} of {}; Ctrl-C ends",
        output::count_of(worlds.len(), "agent"),
        local.args.dir.display()
    ));
    let shared = Shared {
        folder: Arc::new(RwLock::new(folder)),
        changed: watch::channel(()).0,
        stop: watch::channel(false).0,
    };
    let mut tasks = JoinSet::new();
    let mut known = BTreeSet::new();
    for world in worlds {
        known.insert(world.path());
        tasks.spawn(live(world, shared.clone()));
    }
    loop {
        tokio::select! {
            () = stopped() => break,
            () = tokio::time::sleep(RELOAD) => {}
        }
        let newest = stamp_of(&local.args.dir);
        if newest == stamp {
            continue;
        }
        stamp = newest;
        match read_folder(&local.args.dir)
            .and_then(|folder| local.write_config_maps(&folder).map(|()| folder))
        {
            Ok(folder) => {
                known.retain(|path| folder.agents.iter().any(|a| super::path_of(a) == *path));
                let worlds = local.worlds(&folder);
                // Before any new agent looks into it: one that is not in the folder ends.
                *shared.folder.write().await = folder;
                for world in worlds {
                    if known.insert(world.path()) {
                        tasks.spawn(live(world, shared.clone()));
                    }
                }
                super::tell_orphans(&*shared.folder.read().await);
                output::note("manifests read again");
                shared.changed.send_replace(());
            }
            Err(error) => output::problem(&format!("{error:#}; the earlier manifests stay in force")),
        }
    }
    shared.stop.send_replace(true);
    output::note("ending; what runs is waited for");
    while tasks.join_next().await.is_some() {}
    Ok(ExitCode::SUCCESS)
}

/// One agent until the end.
async fn live(mut world: World, shared: Shared) {
    let (mut changed, mut stop) = (shared.changed.subscribe(), shared.stop.subscribe());
    let mut inbox = Inbox::default();
    let mut look_again = Timestamp::MIN;
    let mut told = None;
    loop {
        let news = match take_news(&mut world, &shared.folder, &mut inbox).await {
            Some(news) => news,
            None => {
                output::note(&format!("{}: its manifest is gone; it stops, its memory stays", world.path()));
                return;
            }
        };
        if news || Timestamp::now() >= look_again {
            look_again = match world.settle().await {
                Ok((at, _)) => at.unwrap_or(Timestamp::MAX),
                Err(error) => {
                    output::problem(&format!("{error:#}"));
                    Timestamp::now() + Duration::from_secs(60)
                }
            };
            let stalled = world.stalled();
            if let Some(text) = stalled.as_ref().filter(|_| stalled != told) {
                output::problem(text);
            }
            told = stalled;
        }
        world.tell_requests();
        let wait = Duration::try_from(look_again.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => return,
            _ = changed.changed() => look_again = Timestamp::MIN,
            () = tokio::time::sleep(wait.clamp(Duration::from_millis(200), LOOK)) => {}
        }
    }
}

/// Takes up what was edited, asked for or sent since the last look; true if there is anything new. None = the
/// manifest is gone.
async fn take_news(world: &mut World, folder: &RwLock<Folder>, inbox: &mut Inbox) -> Option<bool> {
    let folder = folder.read().await;
    let agent = folder.agents.iter().find(|a| is(a, world.namespace(), world.name())).cloned()?;
    let mut news = world.edit(agent, &folder);
    for cycle in cycles_of(&folder, world) {
        news |= world.add_cycle(cycle);
    }
    drop(folder);
    news |= world.take_requests();
    match inbox.look(world).await {
        Ok(cycles) => {
            for cycle in cycles {
                news |= world.add_cycle(cycle);
            }
        }
        // A cycle says the same, once, with its class; here it would be said every two seconds.
        Err(error) => tracing::debug!("{}: can't look into the inbox: {error:#}", world.path()),
    }
    Some(news)
}

/// Names and times of the folder's manifests: another value means that something was edited.
fn stamp_of(dir: &Path) -> Vec<(std::path::PathBuf, Option<SystemTime>, u64)> {
    let stamp = |path: std::path::PathBuf| {
        let meta = std::fs::metadata(&path).ok();
        (path, meta.as_ref().and_then(|m| m.modified().ok()), meta.map_or(0, |m| m.len()))
    };
    files(dir).unwrap_or_default().into_iter().map(stamp).collect()
}
