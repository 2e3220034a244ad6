//! The second container of a pod: the user's own image, and what it needs of ours.
//!
//! It gets no Secret, no volume with a database, no service account's token. It shares two folders with
//! the cycle's container: one with our program, and one in memory where the cycle puts address and token
//! of its MCP server. The token is made in the pod and stands in no object of the cluster.

use cicada_contract::plan::{Mode, StoreConfig};
use cicada_crds::executor::Container as OwnImage;
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, PodSpec, ResourceRequirements, SecurityContext, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::job::{CONTAINER, JobInput, Purpose, env_var, mount, restricted};

/// Name of the user's container.
pub const AGENT_CONTAINER: &str = "agent";
/// Name of the init container that copies our program.
const INSTALLER: &str = "install";
/// Folder with our program in the user's container.
const BIN_DIR: &str = "/var/run/cicada/bin";
/// Folder with address and token of MCP, in both containers.
const MCP_DIR: &str = "/var/run/cicada/mcp";
/// Annotation by which AWS's webhook leaves containers without the pod's identity.
pub(crate) const SKIP_CONTAINERS: &str = "eks.amazonaws.com/skip-containers";
/// Room for our program, which has about 40 MiB.
const BIN_SIZE: &str = "256Mi";
/// Room for one small file.
const MCP_SIZE: &str = "1Mi";

/// The user's image, where this Job runs it: what reports, delivers, restores or purges does not.
pub(crate) fn own_image<'a>(input: &JobInput<'a>) -> Option<&'a OwnImage> {
    let works = input.purpose == Purpose::Cycle && *input.mode == Mode::Cycle;
    input.spec.executor.container.as_ref().filter(|_| works)
}

/// True if the user's container could not be kept from the store's credentials: a workload identity is
/// left out of single containers by AWS's webhook only.
pub(crate) fn would_share_identity(store: &StoreConfig) -> bool {
    matches!(store, StoreConfig::S3(s3) if s3.secret_name.is_none() && s3.endpoint.is_some())
}

/// Value of [`SKIP_CONTAINERS`].
pub(crate) fn skipped() -> String {
    format!("{AGENT_CONTAINER},{INSTALLER}")
}

/// Adds the user's container to a pod that has the cycle's.
pub(crate) fn add(pod: &mut PodSpec, own: &OwnImage, pull_policy: Option<String>) {
    // The API token would be mounted into every container; the store's identity has its own.
    pod.automount_service_account_token = Some(false);
    let volumes = pod.volumes.get_or_insert_default();
    volumes.push(empty_dir("bin", None, BIN_SIZE));
    volumes.push(empty_dir("mcp", Some("Memory"), MCP_SIZE));
    let Some(cycle) = pod.containers.iter_mut().find(|c| c.name == CONTAINER) else { return };
    cycle.args.get_or_insert_default().extend(["--mcp".to_owned(), MCP_DIR.to_owned()]);
    cycle.volume_mounts.get_or_insert_default().push(mount("mcp", MCP_DIR, false));
    pod.init_containers = Some(vec![installer(cycle)]);
    let agent = agent(own, pull_policy);
    // First, so that its image is there before the cycle's clock starts.
    pod.containers.insert(0, agent);
}

fn empty_dir(name: &str, medium: Option<&str>, size: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            size_limit: Some(Quantity(size.to_owned())),
        }),
        ..Volume::default()
    }
}

/// Copies our program out of our image.
fn installer(cycle: &Container) -> Container {
    Container {
        name: INSTALLER.into(),
        image: cycle.image.clone(),
        image_pull_policy: cycle.image_pull_policy.clone(),
        args: Some(vec!["child".into(), "install".into(), BIN_DIR.into()]),
        resources: Some(requirements(&[("cpu", "10m"), ("memory", "64Mi")], &[("memory", "64Mi")])),
        volume_mounts: Some(vec![mount("bin", BIN_DIR, false)]),
        security_context: Some(restricted()),
        ..Container::default()
    }
}

fn agent(own: &OwnImage, image_pull_policy: Option<String>) -> Container {
    let ours = [format!("{BIN_DIR}/cycle-job"), "child".into(), "--mcp".into(), MCP_DIR.into(), "--".into()];
    let theirs = own.command.iter().chain(&own.args).map(|text| literal(text));
    let mut resources = requirements(
        &[("cpu", "100m"), ("memory", "256Mi"), ("ephemeral-storage", "256Mi")],
        &[("memory", "1Gi"), ("ephemeral-storage", "2Gi")],
    );
    if let Some(given) = &own.resources {
        resources.requests.get_or_insert_default().extend(given.requests.clone());
        resources.limits.get_or_insert_default().extend(given.limits.clone());
    }
    Container {
        name: AGENT_CONTAINER.into(),
        image: Some(own.image.clone()),
        image_pull_policy,
        command: Some(ours.into_iter().chain(theirs).collect()),
        env: Some(own.env.iter().map(|e| env_var(&e.name, &literal(&e.value))).collect()),
        resources: Some(resources),
        volume_mounts: Some(vec![mount("bin", BIN_DIR, true), mount("mcp", MCP_DIR, true)]),
        security_context: Some(SecurityContext {
            run_as_user: own.run_as_user,
            run_as_group: own.run_as_group,
            // The image is the user's: it may expect to write where it was built to.
            read_only_root_filesystem: None,
            ..restricted()
        }),
        ..Container::default()
    }
}

/// Kubernetes would put variables in place of `$(NAME)`; `cicadactl local` does not, and a shell script
/// means something else by it.
fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}

fn requirements(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let map = |all: &[(&str, &str)]| {
        Some(all.iter().map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned()))).collect())
    };
    ResourceRequirements { requests: map(requests), limits: map(limits), ..ResourceRequirements::default() }
}

#[cfg(test)]
mod tests {
    use cicada_crds::PersistentAgent;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use crate::job::build_job;
    use crate::plan::{plan_config, problems};
    use crate::spec::{OperatorDefaults, sizes};

    use super::*;

    fn an_agent(store: &Value) -> PersistentAgent {
        serde_json::from_value(json!({
            "apiVersion": "cicada.dev/v1alpha1", "kind": "PersistentAgent", "metadata": {"name": "own", "namespace": "shop"},
            "spec": {
                "executor": {"container": {"image": "me/agent:1", "command": ["sh", "-c"], "args": ["echo $(date) $HOME"], "runAsUser": 1000,
                    "env": [{"name": "MODE", "value": "$(x)"}], "resources": {"limits": {"memory": "2Gi"}}}},
                "store": store,
                "secrets": [{"name": "crm", "secretKeyRef": {"name": "crm", "key": "token"}, "allowedHosts": ["crm.test"]}],
                "pod": {"annotations": {SKIP_CONTAINERS: "none"}},
            },
        }))
        .unwrap()
    }

    fn with_secret() -> Value {
        json!({"s3": {"bucket": "b", "endpoint": "http://s3:9000", "credentials": {"secretName": "keys"}}})
    }

    fn job(agent: &PersistentAgent, purpose: Purpose) -> Job {
        job_in(agent, purpose, &Mode::Cycle)
    }

    fn job_in(agent: &PersistentAgent, purpose: Purpose, mode: &Mode) -> Job {
        let defaults =
            OperatorDefaults { cycle_image: "cicada/cycle-job:1".into(), ..OperatorDefaults::default() };
        build_job(&JobInput {
            namespace: "shop",
            agent: "own",
            spec: &agent.spec,
            sizes: &sizes(&agent.spec).unwrap(),
            config: &plan_config(agent, &defaults).unwrap(),
            config_sha256: "0123456789abcdef",
            run_plan: "{}",
            joined: &[],
            mode,
            inline_config: None,
            name: "own-1".into(),
            owner: None,
            cycle_uid: None,
            purpose,
            defaults: &defaults,
        })
    }

    #[test]
    fn the_own_image_gets_our_program_and_a_token_and_nothing_else() {
        let pod = job(&an_agent(&with_secret()), Purpose::Cycle).spec.unwrap().template.spec.unwrap();
        let names: Vec<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["agent", "cycle"]);
        let (agent, cycle) = (&pod.containers[0], &pod.containers[1]);
        let mounts = |c: &Container| -> Vec<(String, bool)> {
            let mounts = c.volume_mounts.clone().unwrap_or_default();
            mounts.into_iter().map(|m| (m.name, m.read_only == Some(true))).collect()
        };
        assert_eq!(mounts(agent), [("bin".to_owned(), true), ("mcp".to_owned(), true)]);
        assert!(mounts(cycle).contains(&("mcp".to_owned(), false)));
        assert!(!mounts(cycle).iter().any(|(name, _)| name == "bin"));
        assert_eq!(
            agent.command.as_deref().unwrap(),
            [
                "/var/run/cicada/bin/cycle-job",
                "child",
                "--mcp",
                MCP_DIR,
                "--",
                "sh",
                "-c",
                "echo $$(date) $HOME"
            ]
        );
        assert_eq!(agent.env.as_ref().unwrap()[0].value.as_deref(), Some("$$(x)"));
        assert!(agent.env_from.is_none() && agent.args.is_none());
        assert_eq!(
            agent.resources.as_ref().unwrap().limits.as_ref().unwrap()["memory"],
            Quantity("2Gi".into())
        );
        assert!(cycle.args.as_ref().unwrap().join(" ").ends_with("--mcp /var/run/cicada/mcp"));
        let install = &pod.init_containers.as_ref().unwrap()[0];
        assert_eq!(install.image, cycle.image);
        assert_eq!(mounts(install), [("bin".to_owned(), false)]);
        assert_eq!(pod.automount_service_account_token, Some(false));
        let in_memory = pod.volumes.as_ref().unwrap().iter().find(|v| v.name == "mcp").unwrap();
        assert_eq!(in_memory.empty_dir.as_ref().unwrap().medium.as_deref(), Some("Memory"));
        for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
            let context = container.security_context.clone().unwrap();
            assert_eq!(context.allow_privilege_escalation, Some(false), "{}", container.name);
            assert_eq!(context.capabilities.unwrap().drop.unwrap(), ["ALL"], "{}", container.name);
            assert!(context.privileged.is_none() && context.run_as_user != Some(0));
        }
        assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));
    }

    #[test]
    fn what_is_no_whole_cycle_runs_no_own_image() {
        let restore = Mode::Restore { snapshot: "1-1-aa".into() };
        for (purpose, mode) in [
            (Purpose::Report, Mode::Cycle),
            (Purpose::Delete, Mode::Delete),
            (Purpose::Cycle, Mode::Delivery),
            (Purpose::Cycle, restore),
        ] {
            let pod = job_in(&an_agent(&with_secret()), purpose, &mode).spec.unwrap().template.spec.unwrap();
            assert_eq!(pod.containers.len(), 1);
            assert!(pod.init_containers.is_none());
        }
    }

    /// The pod's identity stays with the cycle's container, or the manifest is refused.
    #[test]
    fn a_workload_identity_is_never_shared() {
        let aws = an_agent(&json!({"s3": {"bucket": "b", "credentials": {"workloadIdentity": {}}}}));
        let template = job(&aws, Purpose::Cycle).spec.unwrap().template;
        assert_eq!(template.metadata.unwrap().annotations.unwrap()[SKIP_CONTAINERS], "agent,install");
        assert_eq!(template.spec.unwrap().automount_service_account_token, Some(false));
        assert_eq!(problems(&aws, &OperatorDefaults::default()), None);
        let elsewhere = an_agent(
            &json!({"s3": {"bucket": "b", "endpoint": "https://storage.example.com", "credentials": {"workloadIdentity": {}}}}),
        );
        let refused = problems(&elsewhere, &OperatorDefaults::default()).unwrap();
        assert_eq!(refused.reason(), "NotSupported", "{refused}");
    }
}
