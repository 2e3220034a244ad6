//! What can go wrong while acting, by what is done about it.

/// What can go wrong while acting.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another writer was faster: look again at once. Never an event, never an error in the log.
    #[error("another writer was faster")]
    Conflict,
    /// This replica no longer holds the Lease and must not write.
    #[error("the lease is not held any more")]
    NotLeader,
    /// The API server will never accept this object as it is.
    #[error("the API server refuses the {what}: {message}")]
    Invalid {
        /// Kind of object.
        what: &'static str,
        /// Its words.
        message: String,
    },
    /// Quota or policy forbids it for now.
    #[error("the API server forbids the {what}: {message}")]
    Forbidden {
        /// Kind of object.
        what: &'static str,
        /// Its words.
        message: String,
    },
    /// An object that is not ours has a name that ours needs.
    #[error("a {what} named {name} that is not ours is in the way")]
    Foreign {
        /// Kind of object.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// It took longer than a look may take.
    #[error("it took longer than {0} s")]
    Timeout(u64),
    /// A defect of ours, which this agent brings about.
    #[error("a panic: {0}")]
    Panic(String),
    /// Anything else between us and the API server.
    #[error("a request to the API server failed")]
    Kube(#[source] Box<kube::Error>),
}

impl From<cicada_operator_core::SpecError> for Error {
    fn from(error: cicada_operator_core::SpecError) -> Self {
        Self::Invalid { what: "plan", message: error.to_string() }
    }
}

impl Error {
    /// Trying again may help.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Invalid { .. } | Self::Foreign { .. } | Self::NotLeader)
    }

    /// Name of the kind, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotLeader => "not_leader",
            Self::Invalid { .. } => "invalid",
            Self::Forbidden { .. } => "forbidden",
            Self::Foreign { .. } => "foreign",
            Self::Timeout(_) => "timeout",
            Self::Panic(_) => "panic",
            Self::Kube(_) => "kube",
        }
    }

    /// From a write of an object of this kind.
    pub fn of_write(what: &'static str, error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(s) if s.is_conflict() => Self::Conflict,
            // A policy refuses with the code that it likes: 422 where it names none.
            kube::Error::Api(s) if s.is_forbidden() || is_policy(&s.message) => {
                Self::Forbidden { what, message: s.message.clone() }
            }
            kube::Error::Api(s) if s.is_invalid() || s.code == 400 => {
                Self::Invalid { what, message: s.message.clone() }
            }
            _ => Self::Kube(Box::new(error)),
        }
    }
}

/// In the words of a ValidatingAdmissionPolicy, and of a webhook.
fn is_policy(message: &str) -> bool {
    message.contains(" denied request: ") || message.contains(" denied the request")
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}
