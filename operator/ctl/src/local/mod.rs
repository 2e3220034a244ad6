//! `cicadactl local`: the agents of a folder on this machine, without a cluster.

mod child;
pub(crate) mod desk;
mod inbox;
mod live;
mod objects;
mod secrets;
mod summary;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use cicada_contract::plan::StoreConfig;
use cicada_crds::store::{Directory, S3, Store};
use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::spec::OperatorDefaults;
use jiff::Timestamp;

use self::child::Ended;
use self::desk::Desk;
use self::world::{Settings, World};
use crate::args::{Format, LocalArgs};
use crate::exit::{self, Missing, UsageError};
use crate::interrupt::{self, InOrder};
use crate::manifest::{Folder, read_folder};
use crate::output;
use crate::target::{LOCAL_CLUSTER, did_you_mean, store_of};

/// Namespace of a manifest that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// A folder that this process works on.
struct Local {
    args: LocalArgs,
    defaults: OperatorDefaults,
    desk: Desk,
    _lock: desk::Lock,
}

/// Runs the command.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    if !args.once && args.output.format != Format::Table {
        bail!(UsageError(
            "-o json, yaml and csv print what ended when all has ended: they need --once; leave -o out"
                .into()
        ));
    }
    let folder = read_folder(&args.dir)?;
    let _in_order = InOrder::begin();
    let local = Local::take(args)?;
    local.write_config_maps(&folder)?;
    tell_orphans(&folder);
    if local.args.once { local.once(&folder).await } else { live::forever(&local, folder).await }
}

/// One cycle of one agent, in a folder on which no other process works.
pub(crate) async fn run_one(
    args: LocalArgs,
    (namespace, name): (&str, &str),
    cycle: AgentCycle,
) -> anyhow::Result<bool> {
    let folder = read_folder(&args.dir)?;
    let Some(agent) = folder.agents.iter().find(|a| is(a, namespace, name)) else {
        bail!(missing(&folder, &args.dir, namespace, name));
    };
    let _in_order = InOrder::begin();
    let local = Local::take(args)?;
    local.write_config_maps(&folder)?;
    let settings = local.settings(&folder, namespace);
    let mut world = World::new(local.annotated(agent.clone()), &folder.agents, settings);
    if let Some(why) = world.stays_asleep() {
        bail!("{why}");
    }
    world.add_cycle(cycle);
    world.settle().await?;
    if let Some(stalled) = world.stalled() {
        output::problem(&stalled);
    }
    Ok(world.all_succeeded())
}

/// The manifest of a folder's agent.
pub(crate) fn known(dir: &Path, namespace: &str, name: &str) -> anyhow::Result<PersistentAgent> {
    let folder = read_folder(dir)?;
    match folder.agents.iter().find(|agent| is(agent, namespace, name)) {
        Some(agent) => Ok(agent.clone()),
        None => bail!(missing(&folder, dir, namespace, name)),
    }
}

/// Refuses a namespace that no agent of the folder is in.
pub(crate) fn known_namespace(dir: &Path, namespace: &str) -> anyhow::Result<()> {
    let folder = read_folder(dir)?;
    let known: Vec<String> =
        folder.agents.iter().filter_map(|a| Some(path_of(a).split_once('/')?.0.to_owned())).collect();
    if known.iter().any(|known| known == namespace) {
        return Ok(());
    }
    let near = did_you_mean(namespace, &known);
    bail!(Missing(format!("no PersistentAgent of namespace {namespace} in {}{near}", dir.display())))
}

/// Why an agent is not in a folder.
fn missing(folder: &Folder, dir: &Path, namespace: &str, name: &str) -> Missing {
    let known: Vec<String> = folder.agents.iter().map(path_of).collect();
    let wanted = format!("{namespace}/{name}");
    Missing(format!("no PersistentAgent {wanted} in {}{}", dir.display(), did_you_mean(&wanted, &known)))
}

/// True if this is the manifest of `namespace`'s agent `name`.
pub(crate) fn is(agent: &PersistentAgent, namespace: &str, name: &str) -> bool {
    path_of(agent) == format!("{namespace}/{name}")
}

/// `namespace/name`.
fn path_of(agent: &PersistentAgent) -> String {
    format!("{}/{}", namespace_of(agent), agent.metadata.name.as_deref().unwrap_or_default())
}

fn namespace_of(agent: &PersistentAgent) -> &str {
    agent.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

impl Local {
    fn take(args: LocalArgs) -> anyhow::Result<Self> {
        let desk = Desk::new(&args.dir)?;
        let lock = desk.lock()?;
        let defaults = defaults(&args, desk.state())?;
        Ok(Self { args, defaults, desk, _lock: lock })
    }

    /// ConfigMaps become files, as a pod mounts them: for each namespace that an agent is in.
    fn write_config_maps(&self, folder: &Folder) -> anyhow::Result<()> {
        let namespaces: BTreeSet<&str> = folder.agents.iter().map(namespace_of).collect();
        for namespace in namespaces {
            for (name, values) in folder.config_maps.of(namespace) {
                let dir = self.config_maps(namespace).join(&name);
                std::fs::create_dir_all(&dir)?;
                for (key, bytes) in values {
                    std::fs::write(dir.join(&key), bytes)
                        .with_context(|| format!("can't write key {key} of ConfigMap {name}"))?;
                }
            }
        }
        Ok(())
    }

    /// Where the ConfigMaps of a namespace become files.
    fn config_maps(&self, namespace: &str) -> PathBuf {
        self.desk.state().join("configmaps").join(namespace)
    }

    fn settings(&self, folder: &Folder, namespace: &str) -> Settings {
        let config_maps_dir = self.config_maps(namespace).display().to_string();
        Settings {
            defaults: OperatorDefaults { config_maps_dir, ..self.defaults.clone() },
            folder: self.desk.state().join("run"),
            secrets: folder.secrets.of(namespace),
            model_url: self.args.model_url.clone(),
            quiet: self.args.output.format != Format::Table,
            desk: self.desk.clone(),
        }
    }

    /// The manifest with the annotations that commands have given the agent.
    fn annotated(&self, mut agent: PersistentAgent) -> PersistentAgent {
        let namespace = agent.metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.into());
        let given = self.desk.annotations(&namespace, agent.metadata.name.as_deref());
        agent.metadata.annotations.get_or_insert_default().extend(given);
        agent
    }

    fn worlds(&self, folder: &Folder) -> Vec<World> {
        let new = |agent: &PersistentAgent| {
            let settings = self.settings(folder, namespace_of(agent));
            World::new(self.annotated(agent.clone()), &folder.agents, settings)
        };
        folder.agents.iter().map(new).collect()
    }

    /// One cycle of each agent that is not suspended, then the cycles of the folder, then those of agents that
    /// another one's message has woken.
    async fn once(&self, folder: &Folder) -> anyhow::Result<ExitCode> {
        let token = format!("local-{}", Timestamp::now().as_millisecond());
        let (asleep, awake): (Vec<_>, Vec<_>) =
            self.worlds(folder).into_iter().partition(|world| world.stays_asleep().is_some());
        asleep.iter().filter_map(World::stays_asleep).for_each(|why| output::note(&why));
        let mut awake: Vec<(World, Vec<Ended>)> = awake.into_iter().map(|world| (world, vec![])).collect();
        for (world, ended) in &mut awake {
            if interrupt::requested() {
                break;
            }
            world.take_requests();
            world.request(&token);
            ended.extend(world.settle().await?.1);
            for cycle in cycles_of(folder, world) {
                if interrupt::requested() {
                    break;
                }
                world.add_cycle(cycle);
                ended.extend(world.settle().await?.1);
            }
        }
        // The hops of their messages and limits.cyclesPerDay end it.
        let mut woken = true;
        while std::mem::take(&mut woken) && !interrupt::requested() {
            for (world, ended) in &mut awake {
                if world.take_requests() {
                    woken = true;
                    ended.extend(world.settle().await?.1);
                }
            }
        }
        let (mut succeeded, mut all) = (true, vec![]);
        for (world, ended) in awake {
            if let Some(stalled) = world.stalled() {
                output::problem(&stalled);
            }
            succeeded &= world.all_succeeded() && !ended.is_empty();
            all.extend(ended.into_iter().map(|ended| (world.path(), ended)));
        }
        summary::print_all(&all, self.args.output.format)?;
        if interrupt::requested() {
            output::note("interrupted; what had ended is kept");
            return Ok(ExitCode::from(exit::INTERRUPTED));
        }
        Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn defaults(args: &LocalArgs, state: &Path) -> anyhow::Result<OperatorDefaults> {
    let store = match &args.store {
        None => Store {
            directory: Some(Directory { path: state.join("store").display().to_string(), claim_name: None }),
            s3: None,
        },
        Some(url) => match store_of(url, args.endpoint.as_deref(), args.region.as_deref())? {
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
        cluster: LOCAL_CLUSTER.into(),
        store: Some(store),
        local_dir: Some(args.dir.canonicalize()?.display().to_string()),
        ..OperatorDefaults::default()
    })
}

/// Cycles of the folder for one agent.
fn cycles_of(folder: &Folder, world: &World) -> Vec<AgentCycle> {
    folder.cycles.iter().filter(|cycle| agent_of(cycle) == world.path()).cloned().collect()
}

/// `namespace/name` of the agent that a cycle is for.
fn agent_of(cycle: &AgentCycle) -> String {
    let namespace = cycle.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    format!("{namespace}/{}", cycle.spec.agent_ref.name)
}

/// Tells of cycles that nothing will run.
fn tell_orphans(folder: &Folder) {
    let known: Vec<String> = folder.agents.iter().map(path_of).collect();
    for cycle in &folder.cycles {
        let agent = agent_of(cycle);
        if !known.contains(&agent) {
            let name = cycle.metadata.name.as_deref().unwrap_or_default();
            output::note(&format!(
                "AgentCycle {name} is for {agent}, which is not in the folder{}: it does not run",
                did_you_mean(&agent, &known)
            ));
        }
    }
}
