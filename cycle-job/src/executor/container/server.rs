//! The server that the agent's container talks to: MCP, and the word on how its command ended.
//!
//! It listens on loopback, which the containers of a pod share, and wants a token that lies in a folder
//! which both mount. It is there from the cycle's first moment: whoever waits for it learns at once when
//! this process dies, since the connection breaks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use cicada_contract::text::sha256_hex;
use rand::RngCore;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::tools::{Catalogue, Tools};
use crate::executor::model::desk::Said;
use crate::executor::model::tools::Offered;

/// File of the shared folder with address and token.
pub const SESSION_FILE: &str = "session.json";
/// File of the shared folder that says: nothing will come any more.
pub const ENDED_FILE: &str = "ended";
/// How often the stream of [`Phase`] repeats itself, so that a dead peer is noticed.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Calls that wait for the one that is worked on; more wait in their connections.
const QUEUE: usize = 64;
/// Largest request, in bytes: a file of the agent may have 1 MiB, and JSON may double it.
const REQUEST_BYTES: usize = 4 << 20;

/// What the other container needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// Bearer token of every request.
    pub token: String,
}

/// How the agent's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code; 128 and the signal's number where a signal ended it.
    pub code: i32,
    /// The container itself was told to stop.
    #[serde(default)]
    pub is_signalled: bool,
}

/// What happens on the other side.
pub(super) enum Event {
    /// The container is there.
    Attached,
    /// A tool is called.
    Call {
        /// Its name on the wire.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
        /// Where the answer goes.
        reply: oneshot::Sender<Said>,
    },
    /// The command has ended.
    Exit(Exit),
    /// The connection broke without that word.
    Lost,
}

/// What the agent's container is told, as lines of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Wait,
    Ready,
    Stop,
}

impl Phase {
    fn line(self) -> &'static str {
        match self {
            Self::Wait => "wait\n",
            Self::Ready => "ready\n",
            Self::Stop => "stop\n",
        }
    }
}

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No port.
    #[error("could not listen on loopback")]
    Listen(#[source] std::io::Error),
    /// Address and token could not be written.
    #[error("could not write to {folder}")]
    Session {
        /// The shared folder.
        folder: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

struct Shared {
    token_sha256: String,
    phase: watch::Sender<Phase>,
    events: mpsc::Sender<Event>,
    catalogue: watch::Sender<Option<Arc<Catalogue>>>,
    is_attached: AtomicBool,
    has_ended: AtomicBool,
}

/// The running server. It ends with the process.
pub struct AgentServer {
    shared: Arc<Shared>,
    events: Mutex<Option<mpsc::Receiver<Event>>>,
}

impl AgentServer {
    /// Listens on a free port of loopback and puts address and token into `folder`.
    pub async fn start(folder: &Path) -> Result<Self, ServerError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(ServerError::Listen)?;
        let port = listener.local_addr().map_err(ServerError::Listen)?.port();
        let mut bytes = [0u8; 32];
        rand::rng().fill_bytes(&mut bytes);
        let session = Session { url: format!("http://127.0.0.1:{port}"), token: hex::encode(bytes) };
        let (events, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            token_sha256: sha256_hex(&session.token),
            phase: watch::Sender::new(Phase::Wait),
            events,
            catalogue: watch::Sender::new(None),
            is_attached: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let app = router(&shared);
        tokio::spawn(async move { axum::serve(listener, app).await });
        write_session(folder, &session)
            .map_err(|source| ServerError::Session { folder: folder.display().to_string(), source })?;
        Ok(Self { shared, events: Mutex::new(Some(receiver)) })
    }

    /// What happens on the other side; None the second time.
    pub(super) fn events(&self) -> Option<mpsc::Receiver<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets the command start and the tools be called.
    pub(super) fn open(&self, offered: &Offered, instructions: String) {
        self.shared.catalogue.send_replace(Some(Arc::new(Catalogue::new(offered, instructions))));
        self.shared.phase.send_replace(Phase::Ready);
    }

    /// Tells the command to stop.
    pub(super) fn stop(&self) {
        self.shared.phase.send_replace(Phase::Stop);
    }
}

/// Address and token, for nobody but this user and this group: the pod's containers may have different
/// users, but the volume gives both the same group.
fn write_session(folder: &Path, session: &Session) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::create_dir_all(folder)?;
    let _ = std::fs::remove_file(folder.join(ENDED_FILE));
    let new: PathBuf = folder.join("session.new");
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(&new)?;
    file.write_all(serde_json::to_string(session).unwrap_or_default().as_bytes())?;
    std::fs::rename(new, folder.join(SESSION_FILE))
}

/// Says that no server will come, or come again.
pub fn mark_ended(folder: &Path) {
    let marked =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(ENDED_FILE), "ended\n"));
    if let Err(error) = marked {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not tell the agent's container of the end"
        );
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    let (events, catalogue) = (shared.events.clone(), shared.catalogue.subscribe());
    let mcp = StreamableHttpService::new(
        move || {
            let catalogue = catalogue.borrow().clone();
            let catalogue = catalogue.ok_or_else(|| std::io::Error::other("the cycle is not ready yet"))?;
            Ok(Tools::new(catalogue, events.clone()))
        },
        Arc::new(LocalSessionManager::default()),
        // No sessions: every request is whole, so that a client that breaks off leaves nothing behind.
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .enforce_origin_validation()
            .with_max_request_body_bytes(REQUEST_BYTES),
    );
    Router::new()
        .nest_service("/mcp", mcp)
        .route("/child", get(attach))
        .route("/child/exit", post(ended))
        .with_state(shared.clone())
        .layer(middleware::from_fn_with_state(shared.clone(), authorize))
}

/// Both sides are hashed, so that the time of the comparison tells nothing about the token.
async fn authorize(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let token = given.and_then(|v| v.strip_prefix("Bearer ")).unwrap_or_default();
    if sha256_hex(token) != shared.token_sha256 {
        return (StatusCode::UNAUTHORIZED, "a bearer token is needed: CICADA_MCP_TOKEN").into_response();
    }
    next.run(request).await
}

/// Lives as long as the connection of the agent's container.
struct Presence(Arc<Shared>);

impl Drop for Presence {
    fn drop(&mut self) {
        if !self.0.has_ended.load(Ordering::SeqCst) {
            let events = self.0.events.clone();
            // The queue may be full of calls; this word comes after them.
            tokio::spawn(async move { events.send(Event::Lost).await });
        }
    }
}

/// Tells the agent's container what to do, for as long as both live.
async fn attach(State(shared): State<Arc<Shared>>) -> Response {
    if shared.is_attached.swap(true, Ordering::SeqCst) {
        return (StatusCode::CONFLICT, "another process has attached").into_response();
    }
    let presence = Presence(shared.clone());
    if shared.events.send(Event::Attached).await.is_err() {
        return StatusCode::GONE.into_response();
    }
    let phase = shared.phase.subscribe();
    let lines =
        futures::stream::unfold((presence, phase, true), |(presence, mut phase, is_first)| async move {
            if !is_first {
                // A closed channel means that the process ends, and with it this connection.
                let _ = tokio::time::timeout(HEARTBEAT, phase.changed()).await;
            }
            let line = phase.borrow_and_update().line();
            Some((Ok::<_, std::io::Error>(Bytes::from_static(line.as_bytes())), (presence, phase, false)))
        });
    Body::from_stream(lines).into_response()
}

async fn ended(State(shared): State<Arc<Shared>>, axum::Json(exit): axum::Json<Exit>) -> StatusCode {
    if shared.has_ended.swap(true, Ordering::SeqCst) {
        return StatusCode::CONFLICT;
    }
    match shared.events.send(Event::Exit(exit)).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::GONE,
    }
}
