//! OpenAI chat completions, servers that speak the same, and Anthropic messages, through one client crate.

use std::time::Duration;

use async_trait::async_trait;
use cicada_contract::plan::{ModelConfig, Provider, SecretRef};
use cicada_contract::text::{cut, printable};
use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, MessageContent, ReasoningEffort,
    StopReason, Tool, ToolCall, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use serde_json::{Value, json};

use super::client::{CallError, Llm, from_status};
use super::openai::{self, arguments, unique_ids};
use super::redact::Redactor;
use super::tools::Offered;
use super::transcript::{Arguments, Call, Entry, Reply, Stop, Transcript};
use super::usage::Tokens;
use crate::secrets::{SecretError, SecretText, Secrets};

/// Longest wait for one reply: long replies of slow models take minutes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Output bound where the manifest has none and the wire format needs one.
const DEFAULT_MAX_OUTPUT: u32 = 8192;

/// Why the client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The key is not there.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The manifest names none, and this provider needs one.
    #[error(
        "the model has no key: set spec.executor.model.apiKeySecretRef (local: or the variable {variable})"
    )]
    NoKey {
        /// The variable that `cicadactl local` passes on.
        variable: &'static str,
    },
    /// `baseUrl` is not a URL, or the client could not be made.
    #[error("spec.executor.model.baseUrl {0:?} can't be used")]
    BaseUrl(String),
    /// TLS could not be set up.
    #[error("could not set up the model's client")]
    Client(#[source] reqwest::Error),
}

/// A provider's model.
pub struct ProviderModel {
    client: Client,
    target: ServiceTarget,
    options: ChatOptions,
    provider: Provider,
    redactor: Redactor,
}

/// The key of `config`, None for a server that needs none.
pub fn api_key(config: &ModelConfig, secrets: &Secrets) -> Result<Option<SecretText>, ProviderError> {
    if let Some(reference) = &config.api_key {
        return Ok(Some(secrets.get(reference)?));
    }
    let (variable, reference) = match config.provider {
        Provider::OpenAI => ("OPENAI_API_KEY", ("openai", "api-key")),
        Provider::Anthropic => ("ANTHROPIC_API_KEY", ("anthropic", "api-key")),
        Provider::OpenAICompatible => return Ok(None),
    };
    // The variable's name is the one that the reference openai/api-key has anyway.
    let reference = SecretRef { name: reference.0.into(), key: reference.1.into() };
    secrets.find(&reference)?.map_or(Err(ProviderError::NoKey { variable }), |key| Ok(Some(key)))
}

impl ProviderModel {
    /// A client for `config`.
    pub fn new(
        config: &ModelConfig,
        key: Option<&SecretText>,
        redactor: Redactor,
    ) -> Result<Self, ProviderError> {
        let reqwest = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            // A redirect would carry the key to wherever it points.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(ProviderError::Client)?;
        let adapter = match config.provider {
            Provider::OpenAI | Provider::OpenAICompatible => AdapterKind::OpenAI,
            Provider::Anthropic => AdapterKind::Anthropic,
        };
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(base_url(config)?),
            auth: AuthData::from_single(key.map_or("none", SecretText::expose)),
            model: ModelIden::new(adapter, config.name.clone()),
        };
        // The crate reads a reasoning effort out of names like `qwen-max`; the name in the manifest is meant
        // as it is. A budget stops the reading and is itself not sent in this format.
        let mut options =
            ChatOptions::default().with_capture_raw_body(true).with_extra_body(json!({"model": config.name}));
        if adapter == AdapterKind::OpenAI {
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
        }
        if let Some(temperature) = config.temperature {
            options = options.with_temperature(temperature);
        }
        match (config.max_output_tokens, config.provider) {
            (Some(max), _) => options = options.with_max_tokens(max),
            (None, Provider::Anthropic) => options = options.with_max_tokens(DEFAULT_MAX_OUTPUT),
            (None, _) => {}
        }
        let client = Client::builder()
            .with_reqwest(reqwest)
            .build()
            .map_err(|_| ProviderError::BaseUrl(String::new()))?;
        Ok(Self { client, target, options, provider: config.provider, redactor })
    }

    fn request(&self, transcript: &Transcript, tools: &Offered) -> ChatRequest {
        let caches = self.provider == Provider::Anthropic;
        let mark = |message: ChatMessage| {
            if caches { message.with_options(CacheControl::Ephemeral) } else { message }
        };
        let mut messages = vec![mark(ChatMessage::user(transcript.opening()))];
        for entry in transcript.entries() {
            messages.push(match entry {
                Entry::Model(reply) => assistant(reply),
                Entry::Tools(answers) => ChatMessage::tool(MessageContent::from_tool_responses(
                    answers.iter().map(|a| ToolResponse::new(&a.call_id, &a.text)).collect(),
                )),
                Entry::Platform(text) => ChatMessage::user(text.clone()),
            });
        }
        if messages.len() > 1
            && let Some(last) = messages.pop()
        {
            messages.push(mark(last));
        }
        let request = ChatRequest::new(messages).with_system(transcript.system());
        let tools: Vec<Tool> = tools
            .declarations()
            .iter()
            .map(|d| Tool::new(d.wire_name()).with_description(&d.description).with_schema(d.schema.clone()))
            .collect();
        // An empty list is an error at some providers.
        if tools.is_empty() { request } else { request.with_tools(tools) }
    }

    fn error(&self, error: &genai::Error, tools: &Offered) -> Result<Reply, CallError> {
        if let Some(status) = error.status() {
            let header = |name: &str| error.headers()?.get(name)?.to_str().ok().map(str::to_owned);
            return Err(self.clean(from_status(status.as_u16(), &header, body_of(error))));
        }
        match error {
            // Arguments that are no JSON make the crate give the whole reply up; it is read here instead,
            // so that the model can be told.
            genai::Error::ChatResponseGeneration { response_body, cause, .. } => {
                openai::reply(response_body, tools).ok_or_else(|| {
                    self.clean(CallError::Incomplete {
                        message: cut(&printable(cause), 200),
                        tokens: openai::tokens(response_body),
                    })
                })
            }
            genai::Error::WebModelCall { webc_error: genai::webc::Error::Reqwest(e), .. } => {
                let refused = was_refused(e);
                let message = if refused {
                    format!("nothing listens at {}", self.target.endpoint.base_url())
                } else {
                    reqwest_message(e)
                };
                // Once there was a connection the provider may have worked, and bills it.
                Err(self.clean(if e.is_connect() || e.is_builder() {
                    CallError::Unreachable { message, refused }
                } else {
                    CallError::Incomplete { message, tokens: None }
                }))
            }
            genai::Error::WebModelCall {
                webc_error: genai::webc::Error::ResponseFailedNotJson { content_type, .. },
                ..
            } => {
                let message = format!("content type {content_type:?} in place of JSON; is baseUrl right?");
                Err(CallError::Incomplete { message, tokens: None })
            }
            genai::Error::WebModelCall {
                webc_error: genai::webc::Error::ResponseFailedInvalidJson { cause, .. },
                ..
            } => {
                Err(self.clean(CallError::Incomplete { message: cut(&printable(cause), 200), tokens: None }))
            }
            other => Err(self
                .clean(CallError::Refused { status: 0, message: cut(&printable(&other.to_string()), 300) })),
        }
    }

    /// The same error without secrets: some providers repeat the key that they refuse.
    fn clean(&self, error: CallError) -> CallError {
        let clean = |m: String| self.redactor.text(&m);
        match error {
            CallError::Overflow { message } => CallError::Overflow { message: clean(message) },
            CallError::Busy { status, retry_after, message } => {
                CallError::Busy { status, retry_after, message: clean(message) }
            }
            CallError::Unreachable { message, refused } => {
                CallError::Unreachable { message: clean(message), refused }
            }
            CallError::Incomplete { message, tokens } => {
                CallError::Incomplete { message: clean(message), tokens }
            }
            CallError::Refused { status, message } => CallError::Refused { status, message: clean(message) },
        }
    }
}

#[async_trait]
impl Llm for ProviderModel {
    async fn call(&self, transcript: &Transcript, tools: &Offered) -> Result<Reply, CallError> {
        let request = self.request(transcript, tools);
        let response = match self.client.exec_chat(self.target.clone(), request, Some(&self.options)).await {
            Ok(response) => response,
            Err(error) => return self.error(&error, tools),
        };
        if self.provider != Provider::Anthropic
            && response
                .captured_raw_body
                .as_ref()
                .is_some_and(|b| b["choices"].as_array().is_none_or(Vec::is_empty))
        {
            let body = response.captured_raw_body.unwrap_or_default();
            return Err(self.clean(CallError::Incomplete {
                message: format!("no choices: {}", super::client::provider_message(&body.to_string())),
                tokens: openai::tokens(&body),
            }));
        }
        Ok(reply(response, tools))
    }
}

/// The base URL with the slash at its end that the crate joins on. A URL without a path gets `/v1/`.
fn base_url(config: &ModelConfig) -> Result<String, ProviderError> {
    let Some(text) = &config.base_url else {
        return Ok(match config.provider {
            Provider::Anthropic => "https://api.anthropic.com/v1/".into(),
            _ => "https://api.openai.com/v1/".into(),
        });
    };
    let url = reqwest::Url::parse(text).map_err(|_| ProviderError::BaseUrl(text.clone()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(ProviderError::BaseUrl(text.clone()));
    }
    let text = url.as_str().trim_end_matches('/');
    Ok(if url.path().trim_matches('/').is_empty() { format!("{text}/v1/") } else { format!("{text}/") })
}

fn assistant(reply: &Reply) -> ChatMessage {
    if let Some(message) = reply.raw.clone().and_then(|raw| serde_json::from_value(raw).ok()) {
        return message;
    }
    let mut parts: Vec<ContentPart> = vec![];
    if !reply.text.is_empty() || reply.calls.is_empty() {
        // An empty message is an error at every provider.
        parts.push(ContentPart::from_text(if reply.text.is_empty() { "(empty)" } else { &reply.text }));
    }
    for call in &reply.calls {
        let fn_arguments = match &call.arguments {
            Arguments::Object(map) => Value::Object(map.clone()),
            Arguments::Malformed { text, .. } => json!({"malformed": text}),
        };
        let fn_name = super::tools::Declaration {
            name: call.name.clone(),
            description: String::new(),
            schema: Value::Null,
        }
        .wire_name();
        parts.push(ContentPart::ToolCall(ToolCall {
            call_id: call.id.clone(),
            fn_name,
            fn_arguments,
            thought_signatures: None,
        }));
    }
    ChatMessage::assistant(MessageContent::from_parts(parts))
}

fn reply(response: genai::chat::ChatResponse, tools: &Offered) -> Reply {
    let stop = match &response.stop_reason {
        Some(StopReason::MaxTokens(_)) => Stop::Cut,
        Some(StopReason::ContentFilter(_)) => Stop::Refused,
        _ => Stop::Normal,
    };
    let count = |n: Option<i32>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let details = response.usage.prompt_tokens_details.as_ref();
    let tokens = Tokens {
        input: count(response.usage.prompt_tokens),
        cached: count(details.and_then(|d| d.cached_tokens)),
        output: count(response.usage.completion_tokens),
    };
    let text = response.content.texts().join("\n");
    let calls = response.content.tool_calls().into_iter().map(|c| Call {
        id: c.call_id.clone(),
        name: tools.own_name(&c.fn_name).to_owned(),
        arguments: arguments(c.fn_arguments.clone()),
    });
    let mut calls: Vec<Call> = calls.collect();
    let renamed = unique_ids(&mut calls);
    let well_formed = calls.iter().all(|c| matches!(c.arguments, Arguments::Object(_)));
    // Reasoning blocks must go back as they came; everything else is built anew from its parts.
    let has_reasoning = response.reasoning_content.is_some()
        || response.content.iter().any(|p| {
            matches!(
                p,
                ContentPart::ThoughtSignature(_) | ContentPart::ReasoningContent(_) | ContentPart::Custom(_)
            )
        });
    let raw = (has_reasoning && well_formed && !renamed)
        .then(|| response.into_assistant_message_for_tool_use())
        .flatten()
        .and_then(|message| serde_json::to_value(message).ok());
    Reply { text, calls, stop, tokens, raw }
}

fn body_of(error: &genai::Error) -> &str {
    match error {
        genai::Error::HttpError { body, .. } => body,
        genai::Error::WebModelCall { webc_error, .. } | genai::Error::WebAdapterCall { webc_error, .. } => {
            match webc_error {
                genai::webc::Error::ResponseFailedStatus { body, .. } => body,
                _ => "",
            }
        }
        _ => "",
    }
}

/// The client's error and what is below it, without the URL.
/// True if the machine answered that nothing listens.
fn was_refused(error: &reqwest::Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        let io = source.downcast_ref::<std::io::Error>();
        if io.is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = source.source();
    }
    false
}

fn reqwest_message(error: &reqwest::Error) -> String {
    let mut text = match (error.is_timeout(), error.is_connect()) {
        (true, _) => "timeout".to_owned(),
        (_, true) => "connection failed".to_owned(),
        _ => "connection broke".to_owned(),
    };
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        let line = source.to_string();
        if !text.contains(&line) {
            text = format!("{text}: {line}");
        }
        next = source.source();
    }
    cut(&printable(&text), 300)
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
