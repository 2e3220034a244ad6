//! From manifest and cycles to the two parts of the plan.

mod location;
mod provisions;
mod references;
mod run;

use cicada_contract::plan::{
    self, CharterPolicy, ContainerConfig, Executor, Inbound, Limits, MemoryConfig, ModelConfig, OnCorrupt,
    Owner, PLAN_VERSION, PlanConfig, PlanSchedule, Prices, ProvidedFile, Provider, Retention, SecretRef,
    SeedFrom, SelfManagement, SqlSource,
};
use cicada_crds::{
    PersistentAgent, PersistentAgentSpec,
    executor::{self, ConfigMapKeyRef, SecretKeyRef},
    people, store,
};

use self::provisions::{agent_secret, channels, contact, file, http, mcp_server, peers, skill};
pub(crate) use self::run::message_bytes;
pub use self::{
    location::{store_config, store_location, store_secret},
    references::{config_map_names, secret_names},
    run::{expect, is_owned_by, mode, plan_run},
};
use crate::{
    agent_container, approvals,
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
        memory: memory_config(agent, defaults)?,
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
        peers: peers(agent)?,
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
            base_url: m.base_url.clone().or_else(|| defaults.model_base_url.clone()),
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

fn memory_config(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Result<MemoryConfig, SpecError> {
    let sizes = sizes(&agent.spec)?;
    let memory = agent.spec.memory.clone().unwrap_or_default();
    let from = memory.retention.unwrap_or_default();
    let default = Retention::default();
    let accept = agent.metadata.annotations.as_ref().and_then(|a| a.get(crate::ACCEPT_MEMORY_LOSS)).cloned();
    let seed_from = memory.seed_from.map(|from| seed_from(agent, from)).transpose()?;
    Ok(MemoryConfig {
        seed_from,
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
        take_over_from: memory.take_over_from.or_else(|| adopted(agent, defaults)),
        accept_memory_loss: accept,
        refuse_namespace_reuse: memory.namespace_reuse == Some(store::NamespaceReuse::Refuse),
    })
}

/// The owner of the same names in the cluster that this one takes the place of.
fn adopted(agent: &PersistentAgent, defaults: &OperatorDefaults) -> Option<String> {
    let owner = Owner { cluster: defaults.adopt_from.clone(), ..owner(agent, defaults) };
    (!owner.cluster.is_empty()).then(|| owner.path())
}

fn seed_from(agent: &PersistentAgent, from: store::SeedFrom) -> Result<SeedFrom, SpecError> {
    let namespace = from.namespace.or_else(|| agent.metadata.namespace.clone()).unwrap_or_default();
    let seed = SeedFrom { namespace, name: from.name, snapshot: from.snapshot };
    if Some(&seed.name) == agent.metadata.name.as_ref()
        && Some(&seed.namespace) == agent.metadata.namespace.as_ref()
    {
        let problem = "an agent can't start from its own memory; memory.restoreFrom goes back in it".into();
        return Err(SpecError::Value { field: "memory.seedFrom".into(), problem });
    }
    Ok(seed)
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
