//! Arguments of the commands that talk to agents.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::{Output, Place, Target};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl send shop/price-watch \"Please watch tea, too\"
  cicadactl send tea-shop --store file:///tmp/store -n shop --from buyer --channel console \"Order Assam\"")]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The text.
    pub(crate) text: String,
    /// Channel it comes by.
    #[arg(long, default_value = "cli", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) channel: String,
    /// Sender's address.
    #[arg(long, default_value = "operator", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) from: String,
    /// Subject.
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// The sender's own id of the message: the same id twice is one message.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl run shop/price-watch
  cicadactl run shop/price-watch --wait --instruction \"Only check tea.\"
  cicadactl run shop/tea-shop --local crds/examples/local --wait

In the cluster this makes an AgentCycle. With --local, the `cicadactl local` that runs on the folder does the cycle;
if none runs, it is done here.
Exit codes: 0 asked for, with --wait: succeeded; 1 with --wait: failed; 3 no such agent.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// What to do this time: trusted text of a person.
    #[arg(long)]
    pub(crate) instruction: Option<String>,
    /// Follow the cycle to its end.
    #[arg(short, long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl answer shop/price-watch                      the open questions
  cicadactl answer shop/price-watch req-1a2b3c 2         the second option
  cicadactl answer shop/price-watch req-1a2b3c \"Yes, but not before Monday\"

The first answer to a question counts. In the cluster it also asks for a cycle.
Exit codes: 0 answered; 3 no such question.")]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Id of the question; without it the open ones are listed.
    pub(crate) request: Option<String>,
    /// The text, or the number of an option.
    #[arg(requires = "request")]
    pub(crate) answer: Option<String>,
    /// Who answers.
    #[arg(long, default_value = "operator", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) from: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl hold shop/price-watch --reason \"incident 12\"
  cicadactl hold --all -n shop --reason \"migration\"       every agent of the namespace
  cicadactl hold tea-shop -n shop --local crds/examples/local

Nothing starts and nothing is delivered while it stands; a running cycle ends as it would. It is the annotation
cicada.dev/hold, which GitOps tools leave alone.")]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) scope: HoldScope,
    /// Why; people see it in the agent's state.
    #[arg(long, default_value = "held by cicadactl")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cicadactl release shop/price-watch
  cicadactl release --all -n shop              the namespace; agents that are held themselves stay so")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) scope: HoldScope,
}

/// One agent, or a whole namespace.
#[derive(Debug, Args)]
pub(crate) struct HoldScope {
    /// The agent: NAME or NAMESPACE/NAME.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) agent: Option<String>,
    /// The namespace that --namespace names.
    #[arg(long, requires = "namespace")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An agent proposes its charter (selfManagement.charter: Propose), and the platform a changed MCP tool. Schedules of
its own need no approval: selfManagement.schedules allows them or not, and they are in its ledger
(cicadactl query AGENT --ledger \"SELECT * FROM schedules\")."
)]
pub(crate) struct ProposalsArgs {
    #[command(subcommand)]
    pub(crate) command: ProposalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProposalsCommand {
    /// List what an agent proposes.
    #[command(after_help = "Example:
  cicadactl proposals list shop/price-watch")]
    List {
        #[command(flatten)]
        target: Target,
        /// Also those that were decided.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show one proposal: what it would change.
    #[command(after_help = "Examples:
  cicadactl proposals show shop/price-watch charter-1a2b3c4d
  cicadactl proposals show shop/price-watch charter-1a2b3c4d --manifest     what to commit")]
    Show {
        #[command(flatten)]
        target: Target,
        /// Its id.
        id: String,
        /// Print what to commit to Git in its place.
        #[arg(long)]
        manifest: bool,
    },
    /// Approve a proposal as it is now; it comes into force with the next cycle.
    #[command(after_help = "Example:
  cicadactl proposals approve shop/price-watch charter-1a2b3c4d

It adds <id>-<hash> to the annotation cicada.dev/approve. The same text in spec.approvals does it from Git.
Refused if the manifest was edited after the proposal was made.")]
    Approve(DecideArgs),
    /// Reject a proposal; the agent reads it in its next cycle.
    #[command(after_help = "Example:
  cicadactl proposals reject shop/price-watch charter-1a2b3c4d

It adds <id>-<hash> to the annotation cicada.dev/reject.")]
    Reject(DecideArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Its id.
    pub(crate) id: String,
    /// Don't ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
