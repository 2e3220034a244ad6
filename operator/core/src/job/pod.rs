//! The pod: restricted, with one container, or two for the user's own image.

use std::collections::BTreeMap;

use cicada_contract::plan::StoreConfig;
use cicada_crds::pod;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, LocalObjectReference, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};

use super::{
    CONFIG_DIR, CONFIG_PLAN, CONTAINER, JobInput, RUN_DIR, RUN_PLAN, SECRETS_DIR, WORK_DIR, is_reserved,
    pair, volumes::volumes,
};
use crate::{agent_container, spec::Sizes};

/// User and group of the distroless images.
const NONROOT: i64 = 65_532;
/// Public roots in the image of the cycle job.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(super) fn pod_metadata(
    input: &JobInput<'_>,
    pod: &pod::Pod,
    own: BTreeMap<String, String>,
) -> ObjectMeta {
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

pub(super) fn pod_spec(input: &JobInput<'_>, pod: &pod::Pod) -> PodSpec {
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
    env.extend(trust(input));
    let ours: Vec<String> = env.iter().map(|e| e.name.clone()).collect();
    env.extend(pod.env.iter().filter(|e| !ours.contains(&e.name)).map(|e| env_var(&e.name, &e.value)));
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

/// Every client in the program reads its roots from these two: the image's own, and those of the operator's bundle.
/// One that is missing in the namespace is an empty folder.
fn trust(input: &JobInput<'_>) -> Vec<EnvVar> {
    let Some(name) = &input.defaults.ca_config_map_name else { return vec![] };
    let folder = format!("{}/{name}", input.defaults.config_maps_dir);
    vec![env_var("SSL_CERT_FILE", ROOTS), env_var("SSL_CERT_DIR", &folder)]
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
