//! The cycle's tools for shell scripts: the same server, the same tools as for any other program.

use std::path::Path;

use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ContentBlock};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Map, Value};

use super::{ChildError, http_client, session};

async fn connect(folder: &Path) -> Result<RunningService<RoleClient, ()>, ChildError> {
    let session = session(folder)?;
    let client = http_client()?;
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", session.url))
        .auth_header(session.token);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    ().serve(transport).await.map_err(|e| ChildError::Mcp(crate::failure::chain(&e)))
}

/// Calls a tool and prints its result. False if the tool says that it failed.
pub(super) async fn call(folder: &Path, tool: &str, arguments: Value) -> Result<bool, ChildError> {
    let Value::Object(arguments): Value = arguments else { return Err(ChildError::Arguments) };
    let client = connect(folder).await?;
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = Some(Map::from_iter(arguments));
    let called = client.call_tool(params).await;
    let result = called.map_err(|e| ChildError::Mcp(crate::failure::chain(&e)))?;
    for block in &result.content {
        if let ContentBlock::Text(text) = block {
            println!("{}", text.text.trim_end_matches('\n'));
        }
    }
    let _ = client.cancel().await;
    Ok(result.is_error != Some(true))
}

/// Prints what a model would be told at the start of this cycle.
pub(super) async fn prompt(folder: &Path) -> Result<(), ChildError> {
    let client = connect(folder).await?;
    let instructions = client.peer_info().and_then(|info| info.instructions.clone());
    println!("{}", instructions.unwrap_or_default());
    let _ = client.cancel().await;
    Ok(())
}
