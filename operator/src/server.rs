//! `/healthz`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use crate::context::Context;

/// Serves until the process ends.
pub async fn serve(listen: SocketAddr, context: Arc<Context>) -> anyhow::Result<()> {
    let app = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(context);
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .with_context(|| format!("could not listen on {listen}"))?;
    Ok(axum::serve(listener, app).await?)
}

/// Fails when the sweep or a watch has stood still: only a restart helps then.
async fn healthz(State(context): State<Arc<Context>>) -> impl IntoResponse {
    match context.health.fault() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n")),
    }
}

/// Ready once every watch has listed all; holding the Lease is not needed for it.
async fn readyz(State(context): State<Arc<Context>>) -> impl IntoResponse {
    if context.health.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "still listing\n")
    }
}

async fn metrics(State(context): State<Arc<Context>>) -> impl IntoResponse {
    let body = context.metrics.render();
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], body)
}
