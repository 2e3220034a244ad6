//! From manifest and cycles to the two parts of the plan.

use std::collections::BTreeMap;

use cicada_contract::plan::{
    self, AllowedHost, Channel, CharterPolicy, ContainerConfig, CycleIdentity, Executor, Expect, FileSource,
    Http, Inbound, Limits, McpServer, MemoryConfig, Mode, ModelConfig, OnCorrupt, Owner, PLAN_VERSION,
    PlanConfig, PlanContact, PlanFile, PlanMessage, PlanRun, PlanSchedule, PlanSecret, PlanSkill, Prices,
    ProvidedFile, Provider, Retention, S3Config, SecretRef, SelfManagement, SqlSource, StoreConfig, Trigger,
    TriggerKind,
};
use cicada_contract::text::sha256_hex;
use cicada_crds::{
    AgentCycle, PersistentAgent, PersistentAgentSpec, cycle,
    executor::{self, ConfigMapKeyRef, SecretKeyRef},
    people, store,
};
use jiff::Timestamp;

use crate::{
    agent_container, approvals,
    decide::OWN_PREFIX,
    schedule::Recurring,
    spec::{self, OperatorDefaults, SpecError, day_zone, seconds, sizes},
};

/// Everything of a manifest that a cycle needs, with defaults applied.
pub fn plan_config(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Result<PlanConfig, SpecError> {
    let spec = &agent.spec;
    let namespace = agent.metadata.namespace.clone().unwrap_or_default();
    day_zone(spec)?;
    let config = PlanConfig {
        version: PLAN_VERSION,
        owner: owner(agent, defaults),
        charter: spec.charter.clone().unwrap_or_default(),
        store: store_config(spec, defaults)?,
        executor: executor_config(&spec.executor, &namespace, defaults)?,
        success: spec.success.clone(),
        memory: memory_config(agent)?,
        limits: limits(spec)?,
        grace_seconds: spec
            .pod
            .as_ref()
            .and_then(|p| p.termination_grace_period_seconds)
            .and_then(|g| u64::try_from(g).ok()),
        self_management: self_management(spec)?,
        schedules: schedules(spec)?,
        skills: spec.skills.iter().map(skill).collect(),
        contacts: spec.contacts.iter().map(contact).collect(),
        files: spec.files.iter().map(|f| file(f, &namespace, defaults)).collect::<Result<_, _>>()?,
        channels: channels(spec)?,
        inbound: match spec.inbound.unwrap_or_default() {
            people::Inbound::KnownContacts => Inbound::KnownContacts,
            people::Inbound::Anyone => Inbound::Anyone,
        },
        mcp_servers: spec.mcp_servers.iter().map(mcp_server).collect(),
        secrets: spec.secrets.iter().map(agent_secret).collect(),
        http: http(spec),
    };
    let bytes = config.render().0.len();
    if bytes > plan::CONFIG_MAX_BYTES { Err(SpecError::TooLarge { bytes }) } else { Ok(config) }
}

/// Whose memory it is. The namespace's UID is filled in by who watches namespaces.
pub fn owner(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Owner {
    Owner {
        cluster: defaults.cluster.clone(),
        namespace: agent.metadata.namespace.clone().unwrap_or_default(),
        name: agent.metadata.name.clone().unwrap_or_default(),
        uid: agent.metadata.uid.clone().unwrap_or_default(),
        namespace_uid: String::new(),
    }
}

/// Where the memory lives: the manifest's store, else the operator's.
pub fn store_config(
    spec: &PersistentAgentSpec,
    defaults: &OperatorDefaults,
) -> Result<StoreConfig, SpecError> {
    let store = spec.store.as_ref().or(defaults.store.as_ref()).ok_or(SpecError::NoStore)?;
    match (&store.s3, &store.directory) {
        (Some(s3), None) => Ok(StoreConfig::S3(S3Config {
            bucket: s3.bucket.clone(),
            prefix: s3.prefix.as_deref().unwrap_or_default().trim_matches('/').to_owned(),
            endpoint: s3.endpoint.clone(),
            region: s3.region.clone(),
            force_path_style: s3.force_path_style.unwrap_or(false),
            secret_name: s3.credentials.as_ref().and_then(|c| c.secret_name.clone()),
            ca_file: s3
                .ca_config_map_name
                .as_ref()
                .map(|name| format!("{}/{name}/ca.crt", defaults.config_maps_dir)),
        })),
        (None, Some(store::Directory { claim_name, path })) => {
            Ok(StoreConfig::Directory { path: path.clone(), claim_name: claim_name.clone() })
        }
        _ => Err(SpecError::Stores),
    }
}

/// Name of the Secret with which cycles sign in to the store; None with workload identity or a directory.
pub fn store_secret(spec: &PersistentAgentSpec, defaults: &OperatorDefaults) -> Option<String> {
    let store = spec.store.as_ref().or(defaults.store.as_ref())?;
    store.s3.as_ref()?.credentials.as_ref()?.secret_name.clone()
}

/// The resolved location in one line, for status: a change of it must not go unseen.
pub fn store_location(store: &StoreConfig) -> String {
    match store {
        StoreConfig::S3(s3) => {
            let mut location = format!("s3://{}/{}", s3.bucket, s3.prefix);
            if let Some(endpoint) = &s3.endpoint {
                location = format!("{location} at {endpoint}");
            }
            location
        }
        StoreConfig::Directory { path, claim_name } => match claim_name {
            Some(claim) => format!("file://{path} in claim {claim}"),
            None => format!("file://{path}"),
        },
    }
}

fn secret_ref(from: &SecretKeyRef) -> SecretRef {
    SecretRef { name: from.name.clone(), key: from.key.clone() }
}

fn provided(from: &ConfigMapKeyRef, namespace: &str, defaults: &OperatorDefaults) -> ProvidedFile {
    ProvidedFile {
        path: format!("{}/{}/{}", defaults.config_maps_dir, from.name, from.key),
        origin: format!("ConfigMap {namespace}/{}, key {}", from.name, from.key),
    }
}

fn executor_config(
    from: &executor::Executor,
    namespace: &str,
    defaults: &OperatorDefaults,
) -> Result<Executor, SpecError> {
    match (&from.model, &from.sql, &from.container) {
        (Some(m), None, None) => Ok(Executor::Model(ModelConfig {
            provider: match m.provider {
                executor::Provider::OpenAI => Provider::OpenAI,
                executor::Provider::Anthropic => Provider::Anthropic,
                executor::Provider::OpenAICompatible => Provider::OpenAICompatible,
            },
            name: m.name.clone(),
            base_url: m.base_url.clone(),
            api_key: m.api_key_secret_ref.as_ref().map(secret_ref),
            temperature: m.temperature,
            max_output_tokens: m.max_output_tokens,
            prices: m.prices.map(|p| Prices {
                input: p.input,
                cached_input: p.cached_input.unwrap_or(p.input),
                output: p.output,
            }),
        })),
        (None, Some(sql), None) => match (&sql.inline, &sql.config_map_key_ref) {
            (Some(text), None) => Ok(Executor::Sql(SqlSource::Inline(text.clone()))),
            (None, Some(key)) => Ok(Executor::Sql(SqlSource::File(provided(key, namespace, defaults)))),
            _ => Err(SpecError::SqlSource),
        },
        (None, None, Some(c)) => Ok(Executor::Container(ContainerConfig {
            image: c.image.clone(),
            command: c.command.clone(),
            args: c.args.clone(),
            env: c.env.iter().map(|e| (e.name.clone(), e.value.clone())).collect(),
        })),
        _ => Err(SpecError::Executors),
    }
}

fn memory_config(agent: &PersistentAgent) -> Result<MemoryConfig, SpecError> {
    let sizes = sizes(&agent.spec)?;
    let memory = agent.spec.memory.clone().unwrap_or_default();
    let from = memory.retention.unwrap_or_default();
    let default = Retention::default();
    let accept = agent.metadata.annotations.as_ref().and_then(|a| a.get(crate::ACCEPT_MEMORY_LOSS)).cloned();
    Ok(MemoryConfig {
        size_limit: sizes.size_limit,
        ledger_size_limit: sizes.ledger_size_limit,
        retention: Retention {
            snapshots: from.snapshots.unwrap_or(default.snapshots),
            max_age: seconds("memory.retention.maxAge", from.max_age.as_ref(), default.max_age)?,
            messages: seconds("memory.retention.messages", from.messages.as_ref(), default.messages)?,
            tool_results: seconds(
                "memory.retention.toolResults",
                from.tool_results.as_ref(),
                default.tool_results,
            )?,
            steps: seconds("memory.retention.steps", from.steps.as_ref(), default.steps)?,
            cycles: seconds("memory.retention.cycles", from.cycles.as_ref(), default.cycles)?,
        },
        on_corrupt: match memory.on_corrupt.unwrap_or_default() {
            store::OnCorrupt::Stop => OnCorrupt::Stop,
            store::OnCorrupt::FallBack => OnCorrupt::FallBack,
        },
        take_over_from: memory.take_over_from,
        accept_memory_loss: accept,
        refuse_namespace_reuse: memory.namespace_reuse == Some(store::NamespaceReuse::Refuse),
    })
}

fn limits(spec: &PersistentAgentSpec) -> Result<Limits, SpecError> {
    let from = spec.limits.clone().unwrap_or_default();
    let default = Limits::default();
    Ok(Limits {
        timeout: sizes(spec)?.timeout,
        max_model_calls: from.max_model_calls.unwrap_or(default.max_model_calls),
        max_tool_calls: from.max_tool_calls.unwrap_or(default.max_tool_calls),
        tokens_per_cycle: from.tokens_per_cycle.unwrap_or(default.tokens_per_cycle),
        tokens_per_day: from.tokens_per_day.unwrap_or(default.tokens_per_day),
        cost_per_day: from.cost_per_day.unwrap_or(default.cost_per_day),
        messages_per_cycle: from.messages_per_cycle.unwrap_or(default.messages_per_cycle),
        messages_per_day: from.messages_per_day.unwrap_or(default.messages_per_day),
        sql_timeout: seconds("limits.sqlTimeout", from.sql_timeout.as_ref(), default.sql_timeout)?,
        time_zone: from.time_zone.unwrap_or(default.time_zone),
    })
}

fn self_management(spec: &PersistentAgentSpec) -> Result<SelfManagement, SpecError> {
    let from = spec.self_management.clone().unwrap_or_default();
    let schedules = from.schedules.unwrap_or_default();
    let default = SelfManagement::default();
    Ok(SelfManagement {
        charter: match from.charter.unwrap_or_default() {
            cicada_crds::agent::CharterPolicy::Propose => CharterPolicy::Propose,
            cicada_crds::agent::CharterPolicy::Apply => CharterPolicy::Apply,
            cicada_crds::agent::CharterPolicy::Deny => CharterPolicy::Deny,
        },
        schedules: schedules.allow.unwrap_or(default.schedules),
        max_active_schedules: schedules.max_active.unwrap_or(default.max_active_schedules),
        min_interval: seconds(
            "selfManagement.schedules.minInterval",
            schedules.min_interval.as_ref(),
            default.min_interval,
        )?,
        skills: from.skills.unwrap_or(default.skills),
    })
}

/// Slots are left out here on purpose: the config part is shared by all cycles until the manifest changes.
fn schedules(spec: &PersistentAgentSpec) -> Result<Vec<PlanSchedule>, SpecError> {
    spec.schedules
        .iter()
        .map(|s| {
            let schedule = match (&s.cron, s.at) {
                (Some(cron), None) => {
                    let checked = Recurring::parse(cron, s.time_zone.as_deref());
                    checked.map_err(|error| SpecError::Schedule { name: s.name.clone(), error })?;
                    cron.clone()
                }
                (None, Some(at)) => at.to_string(),
                _ => {
                    return Err(SpecError::Value {
                        field: format!("schedules {}", s.name),
                        problem: "exactly one of cron and at is needed".into(),
                    });
                }
            };
            Ok(PlanSchedule {
                name: s.name.clone(),
                schedule,
                once: s.at.is_some(),
                time_zone: s.time_zone.clone(),
                instruction: s.instruction.clone(),
                next: None,
                last: None,
            })
        })
        .collect()
}

fn skill(from: &people::Skill) -> PlanSkill {
    PlanSkill {
        name: from.name.clone(),
        description: from.description.clone().unwrap_or_default(),
        instructions: from.instructions.clone().unwrap_or_default(),
        tools: from.tools.clone(),
    }
}

fn contact(from: &people::Contact) -> PlanContact {
    PlanContact {
        channel: from.channel.clone(),
        address: from.address.clone(),
        display_name: from.display_name.clone(),
        allow_outbound: from.allow_outbound.unwrap_or(false),
        may_instruct: from.may_instruct.unwrap_or(false),
    }
}

fn file(
    from: &people::AgentFile,
    namespace: &str,
    defaults: &OperatorDefaults,
) -> Result<PlanFile, SpecError> {
    let unusable = |problem: &str| SpecError::Value {
        field: format!("files {}", from.path),
        problem: problem.to_owned(),
    };
    if from.path.split('/').any(|part| part == ".." || part == "." || part.is_empty()) {
        return Err(unusable("the path must be relative, without . and .."));
    }
    let source = match &from.from {
        people::FileFrom { config_map_key_ref: Some(key), .. } => {
            FileSource::Provided(provided(key, namespace, defaults))
        }
        people::FileFrom { store_key: Some(key), .. } => FileSource::StoreKey(key.clone()),
        people::FileFrom { url: Some(url), sha256: Some(sha256), .. } => {
            FileSource::Url { url: url.clone(), sha256: sha256.clone() }
        }
        people::FileFrom { path: Some(path), .. } => match &defaults.local_dir {
            Some(dir) => FileSource::Provided(ProvidedFile {
                path: format!("{dir}/{path}"),
                origin: format!("file {path}"),
            }),
            None => return Err(SpecError::LocalFile(path.clone())),
        },
        _ => {
            return Err(unusable(
                "exactly one source is needed: configMapKeyRef, storeKey, or url with sha256",
            ));
        }
    };
    Ok(PlanFile { path: from.path.clone(), from: source })
}

fn channels(spec: &PersistentAgentSpec) -> Result<BTreeMap<String, Channel>, SpecError> {
    spec.channels
        .iter()
        .map(|from| {
            let channel = match (&from.console, &from.webhook, &from.email) {
                (Some(_), None, None) => Channel::Console {},
                (None, Some(w), None) => Channel::Webhook {
                    url: w.url.clone(),
                    signing_key: w.signing_key_secret_ref.as_ref().map(secret_ref),
                },
                (None, None, Some(e)) => Channel::Email {
                    server: e.server.clone(),
                    from: e.from.clone(),
                    username: e.username_secret_ref.as_ref().map(secret_ref),
                    password: e.password_secret_ref.as_ref().map(secret_ref),
                },
                _ => {
                    return Err(SpecError::Value {
                        field: format!("channels {}", from.name),
                        problem: "exactly one of console, webhook and email is needed".into(),
                    });
                }
            };
            Ok((from.name.clone(), channel))
        })
        .collect()
}

fn mcp_server(from: &people::McpServer) -> McpServer {
    McpServer {
        name: from.name.clone(),
        url: from.url.clone(),
        private: from.private.unwrap_or(false),
        headers_secret: from.headers_secret_ref.as_ref().map(|s| s.name.clone()),
        tools: from.tools.clone(),
        read_only_tools: from.read_only_tools.clone(),
    }
}

fn agent_secret(from: &people::AgentSecret) -> PlanSecret {
    PlanSecret {
        name: from.name.clone(),
        from: secret_ref(&from.secret_key_ref),
        allowed_hosts: from.allowed_hosts.clone(),
    }
}

fn http(spec: &PersistentAgentSpec) -> Http {
    let hosts = spec.http.as_ref().map(|h| h.allowed_hosts.as_slice()).unwrap_or_default();
    let host = |h: &people::AllowedHost| AllowedHost {
        host: h.host.clone(),
        port: h.port,
        private: h.private.unwrap_or(false),
    };
    Http { allowed_hosts: hosts.iter().map(host).collect() }
}

/// All Secrets that a config names, each once.
pub fn secret_names(config: &PlanConfig) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    if let StoreConfig::S3(S3Config { secret_name: Some(name), .. }) = &config.store {
        names.insert(name.clone());
    }
    if let Executor::Model(ModelConfig { api_key: Some(key), .. }) = &config.executor {
        names.insert(key.name.clone());
    }
    for channel in config.channels.values() {
        match channel {
            Channel::Console {} => {}
            Channel::Webhook { signing_key, .. } => names.extend(signing_key.iter().map(|s| s.name.clone())),
            Channel::Email { username, password, .. } => {
                names.extend([username, password].into_iter().flatten().map(|s| s.name.clone()));
            }
        }
    }
    names.extend(config.mcp_servers.iter().filter_map(|m| m.headers_secret.clone()));
    names.extend(config.secrets.iter().map(|s| s.from.name.clone()));
    names.into_iter().collect()
}

/// All ConfigMaps of the user that a manifest names, each once.
pub fn config_map_names(spec: &PersistentAgentSpec, defaults: &OperatorDefaults) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    let sql = spec.executor.sql.as_ref().and_then(|s| s.config_map_key_ref.as_ref());
    names.extend(sql.map(|k| k.name.clone()));
    names
        .extend(spec.files.iter().filter_map(|f| f.from.config_map_key_ref.as_ref()).map(|k| k.name.clone()));
    let store = spec.store.as_ref().or(defaults.store.as_ref());
    names.extend(store.and_then(|s| s.s3.as_ref()).and_then(|s3| s3.ca_config_map_name.clone()));
    names.into_iter().collect()
}

/// What the Job of this lead is for.
pub fn mode(agent: &PersistentAgent, lead: &AgentCycle) -> Mode {
    if let Some(restore) = &lead.spec.restore {
        return Mode::Restore { snapshot: restore.snapshot.clone() };
    }
    let own = is_owned_by(lead, agent.metadata.uid.as_deref().unwrap_or_default());
    let triggers = &lead.spec.triggers;
    let delivery =
        own && !triggers.is_empty() && triggers.iter().all(|t| t.kind == cycle::TriggerKind::Delivery);
    // What lies in the inbox needs a whole cycle; an outbox alone does not.
    let inbox = agent.status.as_ref().and_then(|s| s.delivery.as_ref()).and_then(|d| d.inbox).unwrap_or(0);
    if delivery && inbox == 0 { Mode::Delivery } else { Mode::Cycle }
}

/// The run part: the lead's triggers, instructions and messages, then those of the cycles that joined it.
///
/// `cycles` starts with the lead. `own_uid` is the UID of the agent, by which its operator's own cycles
/// are told from people's.
pub fn plan_run(agent: &PersistentAgent, cycles: &[&AgentCycle], config_sha256: &str) -> PlanRun {
    let own_uid = agent.metadata.uid.as_deref().unwrap_or_default();
    let lead = cycles.first();
    let mut run = PlanRun {
        version: PLAN_VERSION,
        config_sha256: config_sha256.to_owned(),
        cycle: CycleIdentity {
            name: lead.and_then(|c| c.metadata.name.clone()).unwrap_or_default(),
            uid: lead.and_then(|c| c.metadata.uid.clone()).unwrap_or_default(),
        },
        triggers: vec![],
        instructions: vec![],
        messages: vec![],
        approvals: approvals::approvals(agent),
        expect: expect(agent),
        mode: lead.map_or(Mode::Cycle, |lead| mode(agent, lead)),
    };
    for cycle in cycles {
        run.triggers.extend(triggers(agent, cycle, is_owned_by(cycle, own_uid)));
        for trigger in &cycle.spec.triggers {
            let schedule = trigger
                .schedule
                .as_ref()
                .and_then(|name| agent.spec.schedules.iter().find(|s| &s.name == name));
            run.instructions
                .extend(schedule.and_then(|s| s.instruction.clone()).filter(|_| is_owned_by(cycle, own_uid)));
        }
        run.instructions.extend(cycle.spec.instruction.clone());
        run.messages.extend(cycle.spec.message.as_ref().map(|m| message(cycle, m)));
    }
    run.instructions.dedup();
    run
}

/// What status knows of the store; nothing before the first report.
pub fn expect(agent: &PersistentAgent) -> Expect {
    let memory = agent.status.as_ref().and_then(|s| s.memory.as_ref());
    Expect { snapshot: memory.and_then(|m| m.snapshot.clone()), epoch: memory.and_then(|m| m.epoch) }
}

/// True if the operator made this cycle for the agent of this UID.
pub fn is_owned_by(cycle: &AgentCycle, agent_uid: &str) -> bool {
    let owners = cycle.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|o| o.controller == Some(true) && o.uid == agent_uid)
}

fn triggers(agent: &PersistentAgent, cycle: &AgentCycle, own: bool) -> Vec<Trigger> {
    let given = if cycle.spec.triggers.is_empty() {
        vec![cycle::CycleTrigger::default()]
    } else {
        cycle.spec.triggers.clone()
    };
    let of_cycle = (!own).then(|| content_key(cycle));
    given
        .iter()
        .enumerate()
        .map(|(index, t)| Trigger {
            kind: kind(t.kind),
            schedule: t.schedule.clone(),
            slot: t.slot,
            token: t.token.clone(),
            handled_key: match &of_cycle {
                Some(key) => (index == 0).then(|| key.clone()),
                None => own_key(agent, t),
            },
        })
        .collect()
}

/// Key of a request that somebody else made: its name and its content, never its UID, so that the same
/// manifest applied to an empty cluster starts nothing twice.
fn content_key(cycle: &AgentCycle) -> String {
    let spec = serde_json::to_string(&cycle.spec).unwrap_or_default();
    let namespace = cycle.metadata.namespace.as_deref().unwrap_or_default();
    format!("cycle/{namespace}/{}/{}", cycle.metadata.name.as_deref().unwrap_or_default(), sha256_hex(spec))
}

/// Key of what the operator itself took up; None for a cron slot, which never repeats.
fn own_key(agent: &PersistentAgent, trigger: &cycle::CycleTrigger) -> Option<String> {
    if let Some(token) = &trigger.token {
        return Some(format!("token/{token}"));
    }
    let name = trigger.schedule.as_ref()?;
    let own = agent.status.iter().flat_map(|s| &s.agent_schedules);
    let own_once = own
        .filter(|s| s.schedule.parse::<Timestamp>().is_ok())
        .any(|s| name.strip_prefix(OWN_PREFIX) == Some(s.key.as_str()));
    let once = own_once || agent.spec.schedules.iter().any(|s| &s.name == name && s.at.is_some());
    once.then(|| format!("at/{name}/{}", trigger.slot.unwrap_or(Timestamp::UNIX_EPOCH)))
}

fn kind(from: cycle::TriggerKind) -> TriggerKind {
    match from {
        cycle::TriggerKind::Schedule => TriggerKind::Schedule,
        cycle::TriggerKind::Request => TriggerKind::Request,
        cycle::TriggerKind::Message => TriggerKind::Message,
        cycle::TriggerKind::Peer => TriggerKind::Peer,
        cycle::TriggerKind::Commitment => TriggerKind::Commitment,
        cycle::TriggerKind::HumanReply => TriggerKind::HumanReply,
        cycle::TriggerKind::Delivery => TriggerKind::Delivery,
    }
}

fn message(cycle: &AgentCycle, from: &cycle::CycleMessage) -> PlanMessage {
    PlanMessage {
        id: cycle.metadata.uid.clone().unwrap_or_default(),
        channel: from.channel.clone().unwrap_or_else(|| "cycle".into()),
        from: from.from.clone().unwrap_or_default(),
        subject: from.subject.clone(),
        body: from.body.clone(),
        at: cycle.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
    }
}

/// All that is wrong with a manifest before any cycle, first the schedules in their order.
pub fn problems(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Option<spec::SpecError> {
    plan_config(agent, defaults)
        .err()
        .or_else(|| sizes(&agent.spec).err())
        .or_else(|| approvals::problem(agent))
        .or_else(|| unsupported(agent, defaults))
}

/// What the schema has and this release does not do: refused, rather than done in part.
fn unsupported(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Option<SpecError> {
    let in_cluster = defaults.local_dir.is_none();
    let shares_identity = in_cluster
        && agent.spec.executor.container.is_some()
        && store_config(&agent.spec, defaults).is_ok_and(|s| agent_container::would_share_identity(&s));
    shares_identity.then_some(SpecError::Unsupported(
        "executor.container with a workload identity outside of AWS, where the agent's container would have it too; use store.s3.credentials.secretName",
    ))
}
