//! The desk's tools as an MCP server shows them.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::server::Event;
use crate::executor::model::tools::Offered;

/// What a client can find out without calling anything.
pub(super) struct Catalogue {
    tools: Vec<Tool>,
    /// What a model would be told: rules, charter, cards, messages, the task.
    instructions: String,
}

impl Catalogue {
    pub(super) fn new(offered: &Offered, instructions: String) -> Self {
        let tool = |d: &crate::executor::model::tools::Declaration| {
            let schema = match &d.schema {
                Value::Object(map) => map.clone(),
                _ => serde_json::Map::new(),
            };
            // Programs hand these names on to models: no dots.
            Tool::new(d.wire_name(), d.description.clone(), Arc::new(schema))
        };
        Self { tools: offered.declarations().iter().map(tool).collect(), instructions }
    }
}

/// One request's view of the server.
pub(super) struct Tools {
    catalogue: Arc<Catalogue>,
    events: mpsc::Sender<Event>,
}

impl Tools {
    pub(super) fn new(catalogue: Arc<Catalogue>, events: mpsc::Sender<Event>) -> Self {
        Self { catalogue, events }
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("cicada", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.catalogue.instructions.clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.catalogue.tools.clone()))
    }

    /// What a tool did wrong is a result, so that whoever called reads it.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (reply, answer) = oneshot::channel();
        let arguments = request.arguments.unwrap_or_default();
        let ends = || ErrorData::internal_error("the cycle is ending; this call was not worked on", None);
        self.events
            .send(Event::Call { name: request.name.into_owned(), arguments, reply })
            .await
            .map_err(|_| ends())?;
        let said = answer.await.map_err(|_| ends())?;
        let content = vec![ContentBlock::text(said.text)];
        Ok(if said.failed { CallToolResult::error(content) } else { CallToolResult::success(content) }.into())
    }
}
