//! The Job of a cycle: a restricted pod with one container, or two for the user's own image.

use std::collections::BTreeMap;

use cicada_contract::class::{EXIT_SUPERSEDED, FAIL_CODES};
use cicada_contract::plan::{Mode, PlanConfig, StoreConfig};
use cicada_crds::{PersistentAgentSpec, pod};
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMap, ConfigMapVolumeSource, Container, DownwardAPIVolumeFile,
    DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvVar, LocalObjectReference, ObjectFieldSelector,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    agent_container, names,
    plan::{config_map_names, secret_names},
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
/// Label of all children: the agent's name.
pub const AGENT_LABEL: &str = "cicada.dev/agent";
/// Label of Jobs and pods: UID of the cycle.
pub const CYCLE_LABEL: &str = "cicada.dev/cycle-uid";
/// Label of Jobs: what it is for.
pub const PURPOSE_LABEL: &str = "cicada.dev/purpose";
/// Seconds that a Job may take to start; part of its fuse.
pub const START_TIMEOUT: u64 = 900;
/// Job and report stay readable for a day, if the operator is down that long.
const TTL_AFTER_FINISHED: i32 = 86_400;
/// User and group of the distroless images.
const NONROOT: i64 = 65_532;

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
            annotations: Some([(CONFIG_SHA256.to_owned(), input.config_sha256.to_owned())].into()),
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

fn pod_metadata(input: &JobInput<'_>, pod: &pod::Pod, own: BTreeMap<String, String>) -> ObjectMeta {
    let mut labels: BTreeMap<_, _> = pod.labels.iter().filter(|(k, _)| !is_reserved(k)).map(pair).collect();
    labels.extend(own);
    let mut annotations: BTreeMap<_, _> =
        pod.annotations.iter().filter(|(k, _)| !is_reserved(k)).map(pair).collect();
    annotations.insert(RUN_PLAN.to_owned(), input.run_plan.to_owned());
    if agent_container::own_image(input).is_some() {
        annotations.insert(agent_container::SKIP_CONTAINERS.to_owned(), agent_container::skipped());
    }
    annotations.extend(input.inline_config.map(|config| (CONFIG_PLAN.to_owned(), config.to_owned())));
    annotations.insert("kubectl.kubernetes.io/default-container".to_owned(), CONTAINER.to_owned());
    ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() }
}

fn pod_spec(input: &JobInput<'_>, pod: &pod::Pod) -> PodSpec {
    let (volumes, mounts) = volumes(input);
    let workload_identity = matches!(&input.config.store, StoreConfig::S3(s3) if s3.secret_name.is_none());
    let ids = pod.security_context.clone().unwrap_or_default();
    let pull_secrets = pod.image_pull_secrets.iter().cloned();
    let default_secrets =
        input.defaults.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    let pull_secrets: Vec<_> = pull_secrets.chain(default_secrets).collect();
    let mut spec = PodSpec {
        containers: vec![container(input, pod, mounts)],
        volumes: Some(volumes),
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(workload_identity),
        service_account_name: pod.service_account_name.clone(),
        enable_service_links: Some(false),
        termination_grace_period_seconds: i64::try_from(input.sizes.grace).ok(),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(ids.run_as_user.unwrap_or(NONROOT)),
            run_as_group: Some(ids.run_as_group.unwrap_or(NONROOT)),
            fs_group: Some(ids.fs_group.unwrap_or(NONROOT)),
            fs_group_change_policy: Some("OnRootMismatch".into()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        node_selector: non_empty(pod.node_selector.clone()),
        tolerations: non_empty(pod.tolerations.clone()),
        affinity: pod.affinity.clone(),
        topology_spread_constraints: non_empty(pod.topology_spread_constraints.clone()),
        priority_class_name: pod.priority_class_name.clone(),
        runtime_class_name: pod.runtime_class_name.clone(),
        image_pull_secrets: non_empty(pull_secrets),
        ..PodSpec::default()
    };
    if let Some(own) = agent_container::own_image(input) {
        agent_container::add(&mut spec, own, pod.image_pull_policy.map(|p| p.as_str().to_owned()));
    }
    spec
}

fn non_empty<T: IntoIterator + Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn container(input: &JobInput<'_>, pod: &pod::Pod, mounts: Vec<VolumeMount>) -> Container {
    let plan = |dir: &str| format!("{dir}/plan.json");
    let args = [
        input.purpose.command().to_owned(),
        "--config".into(),
        plan(CONFIG_DIR),
        "--run".into(),
        plan(RUN_DIR),
        "--secrets".into(),
        SECRETS_DIR.into(),
        "--work".into(),
        WORK_DIR.into(),
        "--report".into(),
        "/dev/termination-log".into(),
    ];
    let mut env: Vec<EnvVar> = vec![env_var("HOME", WORK_DIR), env_var("TMPDIR", WORK_DIR)];
    env.extend(
        pod.env.iter().filter(|e| e.name != "HOME" && e.name != "TMPDIR").map(|e| env_var(&e.name, &e.value)),
    );
    Container {
        name: CONTAINER.into(),
        image: Some(input.defaults.cycle_image.clone()),
        image_pull_policy: pod
            .image_pull_policy
            .map(|p| p.as_str().to_owned())
            .or_else(|| input.defaults.cycle_image_pull_policy.clone()),
        args: Some(args.into()),
        env: Some(env),
        resources: Some(resources(input.sizes, pod.resources.as_ref())),
        volume_mounts: Some(mounts),
        working_dir: Some(WORK_DIR.into()),
        termination_message_path: Some("/dev/termination-log".into()),
        termination_message_policy: Some("File".into()),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

/// What the restricted profile wants of a container, and a root file system that can't be written.
pub(crate) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

pub(crate) fn env_var(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), ..EnvVar::default() }
}

fn resources(sizes: &Sizes, overrides: Option<&pod::Resources>) -> ResourceRequirements {
    let bytes = |n: u64| Quantity(n.to_string());
    let memory = bytes(sizes.resources.container_memory);
    let disk = bytes(sizes.resources.ephemeral_storage);
    let mut requests = BTreeMap::from([
        // Enough that a busy node still schedules it, little enough that it never blocks one.
        ("cpu".to_owned(), Quantity("100m".into())),
        ("memory".to_owned(), memory.clone()),
        ("ephemeral-storage".to_owned(), disk.clone()),
    ]);
    let mut limits = BTreeMap::from([("memory".to_owned(), memory), ("ephemeral-storage".to_owned(), disk)]);
    if let Some(o) = overrides {
        requests.extend(o.requests.clone());
        limits.extend(o.limits.clone());
    }
    ResourceRequirements { requests: Some(requests), limits: Some(limits), ..ResourceRequirements::default() }
}

fn volumes(input: &JobInput<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let mut volumes = vec![
        Volume {
            name: "work".into(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity(input.sizes.resources.disk.to_string())),
                medium: None,
            }),
            ..Volume::default()
        },
        match input.inline_config {
            Some(_) => plan_volume("config", CONFIG_PLAN),
            None => config_map_volume("config", &names::config_map(input.agent, input.config_sha256), false),
        },
        plan_volume("run", RUN_PLAN),
    ];
    let mut mounts =
        vec![mount("work", WORK_DIR, false), mount("config", CONFIG_DIR, true), mount("run", RUN_DIR, true)];
    // What is missing ends the cycle with its name, not the pod with ContainerCreating: hence `optional`.
    for (index, name) in secret_names(input.config).iter().enumerate() {
        let volume = format!("secret-{index}");
        volumes.push(Volume {
            name: volume.clone(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(name.clone()),
                optional: Some(true),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        });
        mounts.push(mount(&volume, &format!("{SECRETS_DIR}/{name}"), true));
    }
    for (index, name) in config_map_names(input.spec, input.defaults).iter().enumerate() {
        let volume = format!("configmap-{index}");
        volumes.push(config_map_volume(&volume, name, true));
        mounts.push(mount(&volume, &format!("{}/{name}", input.defaults.config_maps_dir), true));
    }
    if let StoreConfig::Directory { path, claim_name: Some(claim) } = &input.config.store {
        volumes.push(Volume {
            name: "store".into(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.clone(),
                read_only: None,
            }),
            ..Volume::default()
        });
        mounts.push(mount("store", path, false));
    }
    (volumes, mounts)
}

/// `plan.json` from an annotation of the pod itself.
fn plan_volume(name: &str, annotation: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "plan.json".into(),
                field_ref: Some(ObjectFieldSelector {
                    field_path: format!("metadata.annotations['{annotation}']"),
                    ..ObjectFieldSelector::default()
                }),
                ..DownwardAPIVolumeFile::default()
            }]),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn config_map_volume(volume: &str, name: &str, optional: bool) -> Volume {
    Volume {
        name: volume.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: name.to_owned(),
            optional: optional.then_some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}
