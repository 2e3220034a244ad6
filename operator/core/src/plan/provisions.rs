//! What the manifest provides the agent with: skills, contacts, files, channels, servers, secrets, hosts.

use std::collections::BTreeMap;

use cicada_contract::plan::{
    AllowedHost, Channel, FileSource, Http, McpServer, PlanContact, PlanFile, PlanPeer, PlanSecret,
    PlanSkill, ProvidedFile,
};
use cicada_contract::report;
use cicada_crds::{PersistentAgent, PersistentAgentSpec, people};

use super::{provided, secret_ref};
use crate::spec::{OperatorDefaults, SpecError};

pub(super) fn skill(from: &people::Skill) -> PlanSkill {
    PlanSkill {
        name: from.name.clone(),
        description: from.description.clone().unwrap_or_default(),
        instructions: from.instructions.clone().unwrap_or_default(),
        tools: from.tools.clone(),
    }
}

pub(super) fn contact(from: &people::Contact) -> PlanContact {
    PlanContact {
        channel: from.channel.clone(),
        address: from.address.clone(),
        display_name: from.display_name.clone(),
        allow_outbound: from.allow_outbound.unwrap_or(false),
        may_instruct: from.may_instruct.unwrap_or(false),
    }
}

pub(super) fn file(
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

pub(super) fn channels(spec: &PersistentAgentSpec) -> Result<BTreeMap<String, Channel>, SpecError> {
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

// A cycle may wake all peers of an agent, and its report must name them.
const _: () = assert!(people::PEERS_MAX as usize == report::PEERS_MAX);

pub(super) fn peers(agent: &PersistentAgent) -> Result<Vec<PlanPeer>, SpecError> {
    let own = agent.metadata.name.as_deref();
    let peer = |from: &people::Peer| {
        if own == Some(from.name.as_str()) {
            let problem = "an agent can't be its own peer".into();
            return Err(SpecError::Value { field: format!("peers {}", from.name), problem });
        }
        let messages_per_day = from.messages_per_day.unwrap_or(people::PEER_MESSAGES_PER_DAY);
        Ok(PlanPeer { name: from.name.clone(), messages_per_day })
    };
    agent.spec.peers.iter().map(peer).collect()
}

pub(super) fn mcp_server(from: &people::McpServer) -> McpServer {
    McpServer {
        name: from.name.clone(),
        url: from.url.clone(),
        private: from.private.unwrap_or(false),
        headers_secret: from.headers_secret_ref.as_ref().map(|s| s.name.clone()),
        tools: from.tools.clone(),
        read_only_tools: from.read_only_tools.clone(),
    }
}

pub(super) fn agent_secret(from: &people::AgentSecret) -> PlanSecret {
    PlanSecret {
        name: from.name.clone(),
        from: secret_ref(&from.secret_key_ref),
        allowed_hosts: from.allowed_hosts.clone(),
    }
}

pub(super) fn http(spec: &PersistentAgentSpec) -> Http {
    let hosts = spec.http.as_ref().map(|h| h.allowed_hosts.as_slice()).unwrap_or_default();
    let host = |h: &people::AllowedHost| AllowedHost {
        host: h.host.clone(),
        port: h.port,
        private: h.private.unwrap_or(false),
    };
    Http { allowed_hosts: hosts.iter().map(host).collect() }
}
