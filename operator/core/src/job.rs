//! The Job of a cycle: a restricted pod with one container, or two for the user's own image.

mod pod;
mod volumes;

use std::collections::BTreeMap;

use cicada_contract::class::{EXIT_SUPERSEDED, FAIL_CODES};
use cicada_contract::plan::{Mode, PlanConfig};
use cicada_crds::{PersistentAgentSpec, cycle::CycleRef};
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use self::pod::{pod_metadata, pod_spec};
pub(crate) use self::{
    pod::{env_var, restricted},
    volumes::mount,
};
use crate::{
    names,
    spec::{OperatorDefaults, Sizes},
};

/// Folder of the plan's config part.
pub const CONFIG_DIR: &str = "/var/run/cicada/config";
/// Folder of the plan's run part.
pub const RUN_DIR: &str = "/var/run/cicada/run";
/// Folder with one folder per Secret.
pub const SECRETS_DIR: &str = "/var/run/cicada/secrets";
/// Folder with one folder per ConfigMap.
pub const CONFIG_MAPS_DIR: &str = "/var/run/cicada/configmaps";
/// Working directory of the cycle.
pub const WORK_DIR: &str = "/work";
/// Name of the container whose exit code is the truth.
pub const CONTAINER: &str = "cycle";
/// Annotation of the pod template that holds the run part of the plan.
pub const RUN_PLAN: &str = "cicada.dev/run-plan";
/// Annotation of the pod template of a delete Job that holds the config part: the agent's ConfigMap goes
/// with the agent, which this Job outlives.
pub const CONFIG_PLAN: &str = "cicada.dev/config-plan";
/// Annotation of a Job: SHA-256 of the config part.
pub const CONFIG_SHA256: &str = "cicada.dev/config-sha256";
/// Annotation of a cycle's Job: the cycles that its plan takes along beside the lead, as a JSON list of references.
/// A Job never changes and there is one for a lead, so this says who joined, whatever a status says.
pub const JOINED: &str = "cicada.dev/joined";
/// Label of all children: the agent's name.
pub const AGENT_LABEL: &str = "cicada.dev/agent";
/// Label of Jobs and pods: UID of the cycle.
pub const CYCLE_LABEL: &str = "cicada.dev/cycle-uid";
/// Label of Jobs: what it is for.
pub const PURPOSE_LABEL: &str = "cicada.dev/purpose";
/// Seconds that a Job may take to start; part of its fuse.
pub const START_TIMEOUT: u64 = 900;
/// Job, pod and report stay readable for a day, if the operator is down that long, or until the cycle that owns them
/// goes by its agent's history limits. A succeeded Job is not deleted before: that would be one write more for each
/// cycle, and its log is what people look for first.
const TTL_AFTER_FINISHED: i32 = 86_400;

/// What a Job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A whole cycle, a delivery or a restore: the plan's mode says which.
    Cycle,
    /// Reads the store and executes nothing.
    Report,
    /// Purges a deleted agent's memory.
    Delete,
}

impl Purpose {
    /// Value of [`PURPOSE_LABEL`].
    pub fn label(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::Report => "report",
            Self::Delete => "delete",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Cycle | Self::Delete => "run",
            Self::Report => "report",
        }
    }
}

/// What a Job is made from.
#[derive(Debug)]
pub struct JobInput<'a> {
    /// Namespace of agent and Job.
    pub namespace: &'a str,
    /// Name of the agent.
    pub agent: &'a str,
    /// Its spec.
    pub spec: &'a PersistentAgentSpec,
    /// Its numbers.
    pub sizes: &'a Sizes,
    /// The plan's config part.
    pub config: &'a PlanConfig,
    /// SHA-256 of its bytes.
    pub config_sha256: &'a str,
    /// The plan's run part as JSON.
    pub run_plan: &'a str,
    /// Name of the Job.
    pub name: String,
    /// Who owns the Job; None for a delete Job, which must outlive its agent.
    pub owner: Option<OwnerReference>,
    /// What the plan's run part asks for: only a whole cycle needs the user's own image.
    pub mode: &'a Mode,
    /// The config part as JSON, if the Job is to carry it itself.
    pub inline_config: Option<&'a str>,
    /// UID of the cycle, or of the agent for a delete Job.
    pub cycle_uid: Option<&'a str>,
    /// What it is for.
    pub purpose: Purpose,
    /// Cycles that the plan takes along beside the lead.
    pub joined: &'a [CycleRef],
    /// The operator's part.
    pub defaults: &'a OperatorDefaults,
}

/// The ConfigMap with the plan's config part. It never changes; another content has another name.
pub fn build_config_map(
    namespace: &str,
    agent: &str,
    rendered: &str,
    sha256: &str,
    owner: Option<OwnerReference>,
) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::config_map(agent, sha256)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels(agent, None, None)),
            owner_references: owner.map(|o| vec![o]),
            ..ObjectMeta::default()
        },
        data: Some([("plan.json".to_owned(), rendered.to_owned())].into()),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// Labels of our children: an allow-list, never the parent's, so that a GitOps tool that finds its
/// tracking label on a child does not prune it.
pub fn labels(agent: &str, cycle_uid: Option<&str>, purpose: Option<Purpose>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/managed-by".to_owned(), "cicada-operator".to_owned()),
        (AGENT_LABEL.to_owned(), names::label_value(agent)),
    ]);
    labels.extend(cycle_uid.map(|uid| (CYCLE_LABEL.to_owned(), names::label_value(uid))));
    labels.extend(purpose.map(|p| (PURPOSE_LABEL.to_owned(), p.label().to_owned())));
    labels
}

/// Builds the Job.
pub fn build_job(input: &JobInput<'_>) -> Job {
    let own = labels(input.agent, input.cycle_uid, Some(input.purpose));
    let pod = input.spec.pod.clone().unwrap_or_default();
    let mut job_labels: BTreeMap<_, _> =
        pod.job_labels.iter().filter(|(k, _)| !is_reserved(k)).map(pair).collect();
    job_labels.extend(own.clone());
    let grace = input.sizes.grace;
    let attempts = u64::from(input.sizes.backoff_limit) + 1;
    let deadline = attempts * (input.sizes.timeout + grace) + START_TIMEOUT;
    Job {
        metadata: ObjectMeta {
            name: Some(input.name.clone()),
            namespace: Some(input.namespace.to_owned()),
            labels: Some(job_labels),
            annotations: Some(annotations(input)),
            owner_references: input.owner.clone().map(|o| vec![o]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(i32::try_from(input.sizes.backoff_limit).unwrap_or(i32::MAX)),
            active_deadline_seconds: i64::try_from(deadline).ok(),
            ttl_seconds_after_finished: Some(TTL_AFTER_FINISHED),
            pod_failure_policy: Some(failure_policy()),
            // With a failure policy Kubernetes allows no other: never two pods that both think they work.
            pod_replacement_policy: Some("Failed".into()),
            completions: Some(1),
            parallelism: Some(1),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(input, &pod, own)),
                spec: Some(pod_spec(input, &pod)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn annotations(input: &JobInput<'_>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(CONFIG_SHA256.to_owned(), input.config_sha256.to_owned())]);
    if input.purpose == Purpose::Cycle {
        all.extend(serde_json::to_string(input.joined).ok().map(|joined| (JOINED.to_owned(), joined)));
    }
    all
}

/// The order matters: a drained node is never the cycle's fault, an attempt that a later one fenced
/// counts for nothing, what can't be helped by another attempt ends the Job, and the rest counts.
fn failure_policy() -> PodFailurePolicy {
    let on_exit = |action: &str, codes: Vec<i32>| PodFailurePolicyRule {
        action: action.into(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(CONTAINER.into()),
            operator: "In".into(),
            values: codes,
        }),
        ..PodFailurePolicyRule::default()
    };
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                action: "Ignore".into(),
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    type_: "DisruptionTarget".into(),
                    status: "True".into(),
                }]),
                ..PodFailurePolicyRule::default()
            },
            on_exit("Ignore", vec![EXIT_SUPERSEDED.into()]),
            on_exit("FailJob", FAIL_CODES.map(i32::from).collect()),
        ],
    }
}

fn pair((k, v): (&String, &String)) -> (String, String) {
    (k.clone(), v.clone())
}

/// Prefixes that a manifest may not set on our children: they would hijack our own selection or make a
/// GitOps tool adopt the child.
fn is_reserved(key: &str) -> bool {
    let prefix = key.split('/').next().unwrap_or_default();
    ["cicada.dev", "app.kubernetes.io", "argocd.argoproj.io", "batch.kubernetes.io"].contains(&prefix)
        || prefix.ends_with(".toolkit.fluxcd.io")
        || ["job-name", "controller-uid"].contains(&key)
}
