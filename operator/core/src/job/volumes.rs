//! What the pod's container sees of files: its working directory, the plan, Secrets, ConfigMaps, the claim.

use cicada_contract::plan::StoreConfig;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource,
    ObjectFieldSelector, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{CONFIG_DIR, CONFIG_PLAN, JobInput, RUN_DIR, RUN_PLAN, SECRETS_DIR, WORK_DIR};
use crate::{
    names,
    plan::{config_map_names, secret_names},
};

pub(super) fn volumes(input: &JobInput<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
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
