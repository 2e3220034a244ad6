//! Tools of MCP servers that the manifest names, over streamable HTTP.
//!
//! What a server says of its tools is a stranger's text: name, description and schema are pinned at first
//! use, and a tool that changes is not offered any more. Whether a tool only reads is the manifest's word.

use std::collections::HashMap;
use std::time::Duration;

use cicada_contract::plan::{APPROVAL_HASH_MIN, McpServer};
use cicada_contract::text::{cut, sha256_hex};
use cicada_memory::LedgerWorker;
use cicada_memory::ledger::ToolPin;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{CallToolRequestParams, ContentBlock, Tool};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ServiceExt, service::ServiceError};
use serde_json::{Map, Value, json};
use tokio::task::block_in_place;

use super::ModelError;
use super::http::{SystemResolver, checked_addresses};
use super::redact::Redactor;
use super::tools::Declaration;
use crate::context::Context;

/// Longest wait for a server to introduce itself.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Most tools of one server.
const TOOLS: usize = 128;
/// Most bytes of a description.
const DESCRIPTION_BYTES: usize = 2000;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The server answered with an error, or not at all.
    #[error("the MCP server {server} failed")]
    Service {
        /// Its name.
        server: String,
        /// What the client said.
        #[source]
        source: Box<ServiceError>,
    },
    /// No answer in time.
    #[error("the MCP server {server} gave no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout {
        /// Its name.
        server: String,
    },
    /// No such tool.
    #[error("no MCP server has the tool {0}")]
    Unknown(String),
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpResult {
    /// Its text.
    pub text: String,
    /// The server says that it failed.
    pub is_error: bool,
}

struct Connected {
    name: String,
    client: RunningService<RoleClient, ()>,
    read_only: Vec<String>,
}

/// The servers that answered.
#[derive(Default)]
pub(super) struct Servers {
    servers: Vec<Connected>,
}

impl Servers {
    /// Connects to the servers of the manifest and gives their tools. A server that can't be used is a
    /// line for the prompt; the cycle goes on without it.
    pub(super) async fn connect(
        cx: &Context,
        ledger: &mut LedgerWorker,
        redactor: &Redactor,
    ) -> Result<(Self, Vec<Declaration>, Vec<String>), ModelError> {
        let (mut servers, mut declarations, mut notes) = (Self::default(), vec![], vec![]);
        for config in &cx.plan.config.mcp_servers {
            let headers = headers(cx, config)?;
            match introduce(config, headers).await {
                Ok((client, tools)) => {
                    declarations.extend(offer(cx, ledger, config, redactor, &tools, &mut notes)?);
                    servers.servers.push(Connected {
                        name: config.name.clone(),
                        client,
                        read_only: config.read_only_tools.clone(),
                    });
                }
                Err(reason) => notes.push(format!(
                    "MCP server {} can't be used in this cycle: {}",
                    config.name,
                    cut(&redactor.text(&reason), 300)
                )),
            }
        }
        Ok((servers, declarations, notes))
    }

    fn find<'n>(&self, name: &'n str) -> Option<(&Connected, &'n str)> {
        let (server, tool) = name.split_once('.')?;
        Some((self.servers.iter().find(|s| s.name == server)?, tool))
    }

    /// True if the manifest says that the tool changes nothing.
    pub(super) fn is_read_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(server, tool)| server.read_only.iter().any(|t| t == tool))
    }

    /// Calls `<server>.<tool>`.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<McpResult, McpError> {
        let (server, tool) = self.find(name).ok_or_else(|| McpError::Unknown(name.to_owned()))?;
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(arguments.clone());
        let called = tokio::time::timeout(CALL_TIMEOUT, server.client.call_tool(params)).await;
        let result = called
            .map_err(|_| McpError::Timeout { server: server.name.clone() })?
            .map_err(|source| McpError::Service { server: server.name.clone(), source: Box::new(source) })?;
        let mut parts: Vec<String> = result.content.iter().map(part).collect();
        if parts.is_empty()
            && let Some(value) = &result.structured_content
        {
            parts.push(value.to_string());
        }
        Ok(McpResult { text: parts.join("\n"), is_error: result.is_error == Some(true) })
    }
}

fn part(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        other => {
            let json = serde_json::to_value(other).unwrap_or_default();
            // Pictures and sounds are not shown to the model; links and resources are.
            match json["type"].as_str() {
                Some(kind @ ("image" | "audio")) => {
                    format!("[{kind} of {} base64 bytes]", json["data"].as_str().map_or(0, str::len))
                }
                _ => json.to_string(),
            }
        }
    }
}

/// Headers from the server's Secret: they go over https only, as every secret.
fn headers(cx: &Context, config: &McpServer) -> Result<HashMap<HeaderName, HeaderValue>, ModelError> {
    let Some(secret) = &config.headers_secret else { return Ok(HashMap::new()) };
    let url = Url::parse(&config.url).ok();
    let is_safe = url.as_ref().is_some_and(|u| u.scheme() == "https" || is_loopback(u));
    if !is_safe {
        return Err(ModelError::Mcp(format!(
            "spec.mcpServers {}: headersSecretRef needs an https url",
            config.name
        )));
    }
    let mut headers = HashMap::new();
    for (key, value) in cx.secrets.all(secret)? {
        let parsed = (HeaderName::from_bytes(key.as_bytes()), HeaderValue::from_str(value.expose()));
        let (Ok(name), Ok(mut value)) = parsed else {
            return Err(ModelError::Mcp(format!(
                "secret {secret}: key {key} and its value are no HTTP header"
            )));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|h| {
        h == "localhost"
            || h.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
    })
}

async fn introduce(
    config: &McpServer,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<(RunningService<RoleClient, ()>, Vec<Tool>), String> {
    let url = Url::parse(&config.url).map_err(|e| format!("its url can't be used: {e}"))?;
    let resolving = checked_addresses(&SystemResolver, &url, config.private);
    let addresses = resolving.await.map_err(|e| crate::failure::chain(&e))?;
    // The addresses that were looked at and no others; a server that sends us elsewhere is not followed.
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .resolve_to_addrs(url.host_str().unwrap_or_default(), &addresses)
        .connect_timeout(Duration::from_secs(10))
        .build()
        .map_err(|_| "the client could not be set up".to_owned())?;
    let mut transport = StreamableHttpClientTransportConfig::with_uri(config.url.clone());
    transport.custom_headers = headers;
    let transport = StreamableHttpClientTransport::with_client(client, transport);
    let connect = async {
        let client = ().serve(transport).await.map_err(|e| crate::failure::chain(&e))?;
        let tools = client.list_all_tools().await.map_err(|e| crate::failure::chain(&e))?;
        Ok((client, tools))
    };
    tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| Err("no answer in time".into()))
}

/// Declarations of the tools that the manifest wants and that are what they were at first use.
fn offer(
    cx: &Context,
    ledger: &mut LedgerWorker,
    config: &McpServer,
    redactor: &Redactor,
    tools: &[Tool],
    notes: &mut Vec<String>,
) -> Result<Vec<Declaration>, ModelError> {
    let wanted = |tool: &&Tool| config.tools.is_empty() || config.tools.iter().any(|t| *t == tool.name);
    let declarations: Vec<Declaration> =
        tools.iter().filter(wanted).take(TOOLS).map(|t| declaration(config, redactor, t)).collect();
    let pins: Vec<ToolPin> =
        declarations.iter().map(|d| ToolPin { name: d.name.clone(), hash: hash(d) }).collect();
    let changed = block_in_place(|| ledger.pin_tools(&pins, &cx.plan.run.approvals, cx.now()))?;
    for pin in pins.iter().filter(|pin| changed.contains(&pin.name)) {
        // What a person writes to approve it stands in the pod's log; in the prompt it would be no use.
        let approval = format!("{}-{}", pin.name, &pin.hash[..APPROVAL_HASH_MIN]);
        tracing::warn!(tool = pin.name, approval, "an MCP tool has changed and is not offered");
        notes.push(format!(
            "the MCP tool {} is not what it was when it was first used; it is not offered until it is so again or a person approves it",
            pin.name
        ));
    }
    Ok(declarations.into_iter().filter(|d| !changed.contains(&d.name)).collect())
}

/// A server knows the secrets that it was sent as headers: its words go through the filter, too.
fn declaration(config: &McpServer, redactor: &Redactor, tool: &Tool) -> Declaration {
    let description = redactor.text(tool.description.as_deref().unwrap_or_default());
    let schema = Value::Object(tool.input_schema.as_ref().clone());
    let clean = redactor.text(&schema.to_string());
    Declaration {
        name: format!("{}.{}", config.name, tool.name),
        // Part of every request: whatever it says, the model is told whose words they are.
        description: format!(
            "[described by the MCP server {}] {}",
            config.name,
            cut(&description, DESCRIPTION_BYTES)
        ),
        schema: serde_json::from_str(&clean).unwrap_or_else(|_| json!({"type": "object"})),
    }
}

fn hash(declaration: &Declaration) -> String {
    sha256_hex(json!([declaration.name, declaration.description, declaration.schema]).to_string())
}
