//! The manifests of a folder: what `kubectl apply -f DIR` would send, read without a cluster.

mod schema;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, anyhow, bail};
use cicada_crds::{AgentCycle, PersistentAgent};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::schema::check_schema;
use crate::exit::Missing;
use crate::local::DEFAULT_NAMESPACE;
use crate::names;
use crate::target::{self, did_you_mean};

/// API group of our kinds.
const GROUP: &str = "cicada.dev";

/// Everything that the manifests of one folder say.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// Agents, in order of file and document.
    pub(crate) agents: Vec<PersistentAgent>,
    /// Cycles to run once each.
    pub(crate) cycles: Vec<AgentCycle>,
    /// Secrets; values decoded.
    pub(crate) secrets: Named<String>,
    /// ConfigMaps; text and binary values.
    pub(crate) config_maps: Named<Vec<u8>>,
}

/// Objects with keys and values. One without a namespace is for the agents of every namespace that has none of its name.
#[derive(Debug)]
pub(crate) struct Named<T>(BTreeMap<(Option<String>, String), BTreeMap<String, T>>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> Named<T> {
    /// What the agents of a namespace see, by name.
    pub(crate) fn of(&self, namespace: &str) -> BTreeMap<String, BTreeMap<String, T>> {
        // Those without a namespace sort first, so that the others replace them.
        let seen = self.0.iter().filter(|((own, _), _)| own.as_deref().is_none_or(|own| own == namespace));
        seen.map(|((_, name), values)| (name.clone(), values.clone())).collect()
    }

    fn add(
        &mut self,
        namespace: Option<String>,
        name: String,
        values: BTreeMap<String, T>,
    ) -> anyhow::Result<()> {
        let place = namespace.as_ref().map_or_else(String::new, |n| format!(", in namespace {n}"));
        match self.0.insert((namespace, name), values) {
            None => Ok(()),
            Some(_) => bail!("it is in the folder twice{place}: remove one"),
        }
    }
}

/// Files of `dir` that may hold manifests, in the order of their names.
pub(crate) fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("can't read the folder {}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json"))
        // Through links: a folder may be a mounted ConfigMap.
        .filter(|p| p.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Reads all manifests of `dir`, in the order of their files' names.
pub(crate) fn read_folder(dir: &Path) -> anyhow::Result<Folder> {
    target::folder(dir)?;
    let mut folder = Folder::default();
    for file in files(dir)? {
        let bytes = std::fs::read(&file).with_context(|| format!("can't read {}", file.display()))?;
        let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", file.display()))?;
        let documents: Vec<Value> = if file.extension().is_some_and(|e| e == "json") {
            // Without it, it is the data of an agent, which has such files, too.
            if !text.contains("\"apiVersion\"") {
                continue;
            }
            vec![serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?]
        } else {
            serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?
        };
        for document in documents.into_iter().filter(|d| !d.is_null()) {
            folder.add(document).with_context(|| format!("in {}", file.display()))?;
        }
    }
    if folder.agents.is_empty() {
        bail!(Missing(format!(
            "{} has no PersistentAgent: put a manifest there, or start from crds/examples/local",
            dir.display()
        )));
    }
    Ok(folder)
}

impl Folder {
    fn add(&mut self, mut document: Value) -> anyhow::Result<()> {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
        if kind == "List" {
            let items = document.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
            return items.unwrap_or_default().into_iter().try_for_each(|item| self.add(item));
        }
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_owned();
        let namespace = document.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        let what = format!("{kind} {name}");
        match kind.as_str() {
            "PersistentAgent" => {
                let agent: PersistentAgent = ours(document, &AGENT).with_context(|| what.clone())?;
                unique(&self.agents, &agent).with_context(|| what)?;
                self.agents.push(agent);
            }
            "AgentCycle" => {
                let cycle: AgentCycle = ours(document, &CYCLE).with_context(|| what.clone())?;
                unique(&self.cycles, &cycle).with_context(|| what)?;
                self.cycles.push(cycle);
            }
            "Secret" => {
                let secret: Secret = serde_json::from_value(document).with_context(|| what.clone())?;
                let mut values: BTreeMap<String, String> = secret.string_data.unwrap_or_default();
                for (key, bytes) in secret.data.unwrap_or_default() {
                    values.insert(
                        key,
                        String::from_utf8(bytes.0)
                            .with_context(|| format!("{what} holds bytes that are not text"))?,
                    );
                }
                self.secrets.add(namespace, name, values).with_context(|| what)?;
            }
            "ConfigMap" => {
                let map: ConfigMap = serde_json::from_value(document).with_context(|| what.clone())?;
                let text = map.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.into_bytes()));
                let binary = map.binary_data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0));
                let values: BTreeMap<String, Vec<u8>> = text.chain(binary).collect();
                // They become a folder and files in it.
                if let Some(wrong) = values.keys().find(|key| !names::is_key(key)) {
                    bail!("{what} has the key {wrong:?}: letters, digits, -, _ and . are allowed");
                }
                if !names::is_name(&name) {
                    bail!("{name:?} can't be the name of a ConfigMap");
                }
                self.config_maps.add(namespace, name, values).with_context(|| what)?;
            }
            "" => bail!("a document has no kind"),
            _ if version_of(&document).starts_with(GROUP) => {
                let known = ["PersistentAgent", "AgentCycle"].map(str::to_owned);
                bail!("there is no kind {kind} in {GROUP}{}", did_you_mean(&kind, &known))
            }
            // A Git folder holds more than ours (Namespaces, RoleBindings, ...): not our business here.
            _ => {}
        }
        Ok(())
    }
}

fn version_of(document: &Value) -> &str {
    document.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Of one of our kinds: what its manifests look like.
struct Kind {
    /// Its `apiVersion`.
    version: String,
    /// JSON schema of its spec.
    spec: Value,
}

/// Made once: a folder may hold hundreds of manifests.
static AGENT: LazyLock<Kind> = LazyLock::new(Kind::of::<PersistentAgent>);
static CYCLE: LazyLock<Kind> = LazyLock::new(Kind::of::<AgentCycle>);

impl Kind {
    fn of<K: kube::CustomResourceExt>() -> Self {
        let crd = K::crd();
        let version = crd.spec.versions.first();
        let spec = version
            .and_then(|v| v.schema.as_ref()?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec"))
            .and_then(|spec| serde_json::to_value(spec).ok());
        Self {
            version: version.map(|v| format!("{GROUP}/{}", v.name)).unwrap_or_default(),
            spec: spec.unwrap_or_default(),
        }
    }
}

/// Reads one of our objects as an API server would take it.
fn ours<K: kube::ResourceExt + DeserializeOwned>(document: Value, kind: &Kind) -> anyhow::Result<K> {
    if version_of(&document) != kind.version {
        bail!("its apiVersion is {:?}: write {}", version_of(&document), kind.version);
    }
    check_schema(&document, &kind.spec)?;
    let object: K = serde_json::from_value(document)?;
    // Folders are named after both.
    names::check(&namespace(&object), &object.name_any()).map_err(|wrong| anyhow!("{wrong}"))?;
    Ok(object)
}

fn namespace(object: &impl kube::ResourceExt) -> String {
    object.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

/// Two of one name would work on one memory, each as if it were alone.
fn unique<K: kube::ResourceExt>(known: &[K], object: &K) -> anyhow::Result<()> {
    let is_same =
        |other: &K| other.meta().name == object.meta().name && namespace(other) == namespace(object);
    if known.iter().any(is_same) {
        bail!("it is in the folder twice, in namespace {}: remove one", namespace(object));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_is_refused_and_the_nearest_named() {
        let document = serde_json::json!({"apiVersion": "cicada.dev/v1alpha1", "kind": "PersistentAgent", "metadata": {"name": "a"},
            "spec": {"charter": "x", "shedules": [], "executor": {"sql": {"inlin": "SELECT 1"}}}});
        let mut folder = Folder::default();
        let error = format!("{:#}", folder.add(document).unwrap_err());
        assert!(error.contains("unknown field spec.shedules (did you mean schedules?)"), "{error}");
        assert!(error.contains("unknown field spec.executor.sql.inlin (did you mean inline?)"), "{error}");
    }

    #[test]
    fn secrets_are_read_in_both_spellings() {
        let mut folder = Folder::default();
        folder
            .add(serde_json::json!({"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}, "data": {"b": "Mg=="}}))
            .unwrap();
        assert_eq!(folder.secrets.of("lab")["s"]["a"], "1");
        assert_eq!(folder.secrets.of("lab")["s"]["b"], "2");
    }

    #[test]
    fn a_secret_is_seen_by_the_agents_of_its_namespace() {
        let mut folder = Folder::default();
        let mut add = |kind: &str, metadata: Value, value: &str| {
            let data = if kind == "Secret" { "stringData" } else { "data" };
            folder.add(serde_json::json!({"kind": kind, "metadata": metadata, data: {"k": value}}))
        };
        for kind in ["Secret", "ConfigMap"] {
            add(kind, serde_json::json!({"name": "s"}), "any").unwrap();
            add(kind, serde_json::json!({"name": "s", "namespace": "lab"}), "lab").unwrap();
            add(kind, serde_json::json!({"name": "s", "namespace": "shop"}), "shop").unwrap();
            let twice = add(kind, serde_json::json!({"name": "s", "namespace": "lab"}), "lab").unwrap_err();
            assert!(format!("{twice:#}").contains("twice, in namespace lab"), "{twice:#}");
        }
        for (namespace, value) in [("lab", "lab"), ("shop", "shop"), ("other", "any")] {
            assert_eq!(folder.secrets.of(namespace)["s"]["k"], value);
            assert_eq!(folder.config_maps.of(namespace)["s"]["k"], value.as_bytes());
        }
    }

    /// What a folder with these files says.
    fn read(files: &[(&str, &str)]) -> anyhow::Result<Folder> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        read_folder(dir.path())
    }

    const AGENT: &str = "apiVersion: cicada.dev/v1alpha1\nkind: PersistentAgent\nmetadata: {name: a}\nspec:\n  charter: c\n  \
                         executor:\n    sql: {inline: SELECT 1}\n";

    #[test]
    fn manifests_are_read_in_every_form_that_people_write() {
        let marked = format!("\u{feff}{AGENT}");
        let crlf = AGENT.replace('\n', "\r\n");
        let many = format!(
            "---\n{AGENT}---\n# nothing\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: n}}\n"
        );
        let anchors =
            AGENT.replace("charter: c", "charter: &c c").replace("{inline: SELECT 1}", "{inline: *c}");
        let agent: Value = serde_saphyr::from_str(AGENT).unwrap();
        let json = agent.to_string();
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [agent]}).to_string();
        for (name, text) in [
            ("bom.yaml", marked.as_str()),
            ("crlf.yml", &crlf),
            ("many.yaml", &many),
            ("anchors.yaml", &anchors),
            ("a.json", &json),
            ("list.json", &list),
        ] {
            let folder = read(&[(name, text), ("data.json", "[1, {}"), ("notes.txt", "kind: [")]);
            assert_eq!(folder.unwrap().agents.len(), 1, "{name}");
        }
    }

    #[test]
    fn a_manifest_that_is_wrong_is_told_with_its_place() {
        let edit = |from: &str, to: &str| AGENT.replace(from, to);
        for (text, words) in [
            (edit("  charter", "\tcharter"), "a.yaml is not YAML"),
            (edit("charter: c", "charter: 7"), "spec.charter must be a text"),
            (edit("{inline: SELECT 1}", "[]"), "spec.executor.sql must be an object"),
            (
                edit("charter: c", "charter: c\n  selfManagement: {charter: propose}"),
                "(did you mean Propose?)",
            ),
            (edit("name: a", "name: ../../a"), "can't be the name of an agent"),
            (edit("name: a", "other: a"), "can't be the name of an agent"),
            (edit("PersistentAgent", "PersistentAgents"), "(did you mean PersistentAgent?)"),
            (edit("v1alpha1", "v1"), "write cicada.dev/v1alpha1"),
            (edit("executor:", "executer:"), "(did you mean executor?)"),
            // Which an API server refuses as well.
            (edit("charter: c", "runToken: ''"), "spec.runToken has 0 characters, at least 1"),
            (edit("charter: c", "backoffLimit: 10"), "spec.backoffLimit is 10, at most 9"),
            (edit("charter: c", "backoffLimit: -1"), "spec.backoffLimit is -1, at least 0"),
        ] {
            let error = format!("{:#}", read(&[("a.yaml", &text)]).unwrap_err());
            assert!(error.contains(words), "{words}: {error}");
        }
        let error = format!("{:#}", read(&[("a.yaml", AGENT), ("b.yaml", AGENT)]).unwrap_err());
        assert!(error.contains("b.yaml") && error.contains("twice"), "{error}");
        let error = format!("{:#}", read(&[("a.yaml", AGENT), ("b.json", "{\"apiVersion\": ")]).unwrap_err());
        assert!(error.contains("b.json is not JSON"), "{error}");
    }

    #[test]
    fn a_folder_with_hundreds_of_manifests_is_read_at_once() {
        let agent = |n: usize| AGENT.replace("name: a", &format!("name: a{n}"));
        let text: Vec<String> = (0..500).map(agent).collect();
        let start = std::time::Instant::now();
        let folder = read(&[("a.yaml", &text.join("---\n"))]).unwrap();
        assert_eq!(folder.agents.len(), 500);
        // The schema made anew for each of them took half a minute on a busy machine.
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
