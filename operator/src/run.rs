//! Wiring: watches, workers, sweep, Lease, server, signals.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, client::ClientBuilder};
use tokio::signal::unix::{SignalKind, signal};
use tower::timeout::TimeoutLayer;

use crate::{
    args::RunArgs,
    config::Config,
    context::Context,
    error::Error,
    index::Key,
    lease::{ANSWER, RENEW},
    metrics::KindLabels,
    namespaces,
    parts::{self, Parts},
    reconcile, server, tidy, watch,
};

/// How often a replica without the Lease asks for it: the gap of a rollout. Also the wait after a renewal
/// that failed.
pub(crate) const ASK: Duration = Duration::from_secs(1);
/// Longest wait for the headers of an answer. A watch that is begun on a pooled connection which died
/// without a word would else wait for ever.
const HEADERS: Duration = Duration::from_secs(30);
/// Time between two looks whether everything is listed.
const LISTING: Duration = Duration::from_millis(50);
/// Most threads: the work is waiting for the API server.
const THREADS: usize = 4;
/// Time between two sweeps.
const SWEEP: Duration = Duration::from_mins(1);
/// Old plans are tidied away at each of so many sweeps.
const TIDY: u64 = 60;
/// How long the end waits for work in hand; below the pod's grace period of 30 s.
const DRAIN: Duration = Duration::from_secs(20);
/// A conflict is looked at again after this long.
const CONFLICT_WAIT: Duration = Duration::from_millis(200);

/// What workers remember of each agent.
#[derive(Debug, Default)]
struct Memo {
    /// When each is to be looked at again, by the wall clock: the queue's own clock stands still in a
    /// suspended machine and does not see a step of the time. None = when something changes.
    look_again: Mutex<HashMap<Key, Option<Timestamp>>>,
    failures: Mutex<HashMap<Key, u32>>,
    /// Done once, by the first worker.
    begun: OnceLock<()>,
}

/// Runs until SIGTERM, or until the Lease is lost. Here and not in the program, which would compile all of
/// it once more.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    // Each thread has a part of the heap to itself, which on a large node would be most of the memory.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let code = runtime.block_on(serve(args));
    // Without waiting for anything: who lost the Lease must not go on with what was in hand.
    runtime.shutdown_background();
    code
}

async fn serve(args: RunArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.instance.config.as_deref())?;
    let mut kube_config =
        kube::Config::infer().await.context("found neither a service account nor a kubeconfig")?;
    // Our own waits know what a failure means; the client's own would block a look for minutes.
    kube_config.default_retry = false;
    let builder = ClientBuilder::try_from(kube_config.clone()).context("could not make a client")?;
    let client = builder.with_layer(&TimeoutLayer::new(HEADERS)).build();
    let identity = identity(&args.identity);
    let config = with_cluster_name(config, &client, &args.instance.watch_namespaces).await?;
    let context = Arc::new(Context::new(client, kube_config, config, &args, &identity));
    tracing::info!(identity, namespaces = ?context.namespaces, store = context.config.defaults.store.is_some(), "starting");
    crate::schema::check(&context).await;
    let memo = Arc::new(Memo::default());
    let (leads, leading) = tokio::sync::watch::channel(false);
    let mut parts = start(&context, &memo, &args, &leading);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (part, why) = tokio::select! {
        end = parts.first_end() => end,
        // Here, so that nothing renews the Lease any more once it is to be released.
        why = lead(&context, &leads) => ("lease".to_owned(), why.to_owned()),
        _ = terminate.recv() => return Ok(drain(&context).await),
        _ = interrupt.recv() => return Ok(drain(&context).await),
    };
    tracing::error!(part, why, "ending: a part of the operator has ended");
    Ok(ExitCode::FAILURE)
}

/// Everything that works as long as the process lives. The process ends with the first of them: what goes on
/// without one of its parts looks healthy and does not do its work.
fn start(
    context: &Arc<Context>,
    memo: &Arc<Memo>,
    args: &RunArgs,
    leading: &tokio::sync::watch::Receiver<bool>,
) -> Parts {
    let mut parts = Parts::default();
    for (name, watch) in watch::start(context) {
        parts.spawn_endless(format!("watch of {name}"), watch);
    }
    let (context, memo) = (context.clone(), memo.clone());
    parts.spawn("server", server::serve(args.listen, context.clone()));
    parts.spawn_endless("sweep", sweep(context.clone(), memo.clone()));
    for _ in 0..args.concurrency.max(1) {
        parts.spawn_endless("worker", work(context.clone(), memo.clone(), leading.clone()));
    }
    parts.spawn_endless("events", async move { context.said.write(&context.recorder).await });
    parts
}

fn identity(given: &str) -> String {
    if given.is_empty() {
        format!("{}-{}", std::env::var("HOSTNAME").unwrap_or_else(|_| "local".into()), std::process::id())
    } else {
        given.to_owned()
    }
}

/// The owner of each memory names its cluster: by configuration, else by the UID of kube-system.
async fn with_cluster_name(
    mut config: Config,
    client: &Client,
    namespaces: &[String],
) -> anyhow::Result<Config> {
    if !config.defaults.cluster.is_empty() {
        return Ok(config);
    }
    anyhow::ensure!(
        namespaces.iter().all(String::is_empty),
        "with --watch-namespaces the configuration must set defaults.cluster"
    );
    let system = Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await
        .context("could not read the namespace kube-system")?;
    config.defaults.cluster = system.metadata.uid.context("kube-system has no UID")?;
    Ok(config)
}

/// Takes the Lease, lets the workers begin, and ends when it is lost, with the reason.
async fn lead(context: &Context, leads: &tokio::sync::watch::Sender<bool>) -> &'static str {
    let mut leading = false;
    loop {
        let ticked = tokio::time::timeout(ANSWER, context.lease.tick(Timestamp::now())).await;
        let ticked = ticked.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())));
        let renewed = ticked.is_ok();
        match ticked {
            Ok(true) if !leading => {
                leading = true;
                context.metrics.leader.set(1);
                tracing::info!("leading");
                leads.send_replace(true);
            }
            Ok(false) if leading => return "another replica holds the lease",
            Ok(_) => {}
            Err(error) => {
                context.metrics.error("lease");
                tracing::warn!(error = %error, "the lease could not be renewed");
                context.lease.reconnect();
                if leading && !context.lease.may_act() {
                    return "the lease could not be renewed in time";
                }
            }
        }
        tokio::time::sleep(if leading && renewed { RENEW } else { ASK }).await;
    }
}

async fn work(context: Arc<Context>, memo: Arc<Memo>, mut leading: tokio::sync::watch::Receiver<bool>) {
    if leading.wait_for(|leading| *leading).await.is_err() {
        return;
    }
    // Before every watch has listed all, what is missing from the index says nothing.
    while !context.health.is_ready() {
        tokio::time::sleep(LISTING).await;
    }
    memo.begun.get_or_init(|| begin(&context, Timestamp::now()));
    while let Some(key) = context.queue.next().await {
        let started = tokio::time::Instant::now();
        let result = guarded(reconcile::reconcile(&context, &key)).await;
        context.metrics.reconcile_seconds.observe(started.elapsed().as_secs_f64());
        let wait = settle(&context, &memo, &key, result);
        context.queue.done(&key);
        if let Some(wait) = wait {
            context.queue.add(key, wait);
        }
    }
}

/// A look whose panic is its error: a defect that one agent brings about must not stop the others, nor lose this one.
async fn guarded<T>(look: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let ended = std::panic::AssertUnwindSafe(look).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(Error::Panic(parts::text(&*panic))))
}

/// A new leader looks at every agent once, and meanwhile at those whose time has come: what was queued while another
/// led says nothing of that.
fn begin(context: &Context, now: Timestamp) {
    context.queue.clear();
    let keys = { context.index().keys() };
    for key in keys {
        let status =
            { context.index().agent(&key) }.and_then(|agent| agent.status.clone()).unwrap_or_default();
        let due = status.active_cycle.map(|_| now).or(status.next_schedule_time);
        if let Some(due) = due {
            context.queue.add(key.clone(), Duration::try_from(due.duration_since(now)).unwrap_or_default());
        }
        context.queue.add_first_look(key, Duration::ZERO);
    }
}

/// Notes how a look went, and says when the next is due, if anything but a change makes it so.
fn settle(
    context: &Context,
    memo: &Memo,
    key: &Key,
    result: Result<Option<Timestamp>, Error>,
) -> Option<Duration> {
    let count =
        |kind: &str| context.metrics.reconciles.get_or_create(&KindLabels { kind: kind.to_owned() }).inc();
    let mut failures = memo.failures.lock().unwrap_or_else(PoisonError::into_inner);
    match result {
        Ok(at) => {
            failures.remove(key);
            count("ok");
            memo.look_again.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), at);
            let wait = |at: Timestamp| Duration::try_from(at.duration_since(Timestamp::now()));
            at.map(|at| wait(at).unwrap_or(Duration::ZERO))
        }
        Err(Error::Conflict) => {
            count("conflict");
            Some(CONFLICT_WAIT)
        }
        // Either the Lease comes back with the next renewal, or the process ends.
        Err(Error::NotLeader) => Some(RENEW),
        Err(error) => {
            let n = failures.entry(key.clone()).or_insert(0);
            *n += 1;
            let wait = Duration::from_millis(500) * 2u32.pow((*n - 1).min(9));
            count("error");
            context.metrics.error(error.kind());
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let cycle = { context.index().agent(key) }.and_then(|a| a.status.as_ref()?.active_cycle.clone());
            tracing::warn!(
                agent = %key,
                cycle = cycle.map(|c| c.name),
                error = %error,
                cause,
                wait = ?wait,
                "a look at an agent failed"
            );
            Some(wait)
        }
    }
}

/// What is due by the wall clock; agents that are no more are forgotten.
fn overdue(keys: &[Key], look_again: &mut HashMap<Key, Option<Timestamp>>, now: Timestamp) -> Vec<Key> {
    let known: std::collections::HashSet<&Key> = keys.iter().collect();
    look_again.retain(|key, _| known.contains(key));
    let due = |at: &Option<Timestamp>| at.is_some_and(|at| at <= now);
    keys.iter().filter(|key| look_again.get(key).is_none_or(due)).cloned().collect()
}

/// Once a minute, whatever the queue does: looks at all that is due by the wall clock.
async fn sweep(context: Arc<Context>, memo: Arc<Memo>) {
    for minute in 1u64.. {
        context.health.swept();
        let now = Timestamp::now();
        if context.health.is_ready() {
            let keys = context.index().keys();
            let mut look_again = memo.look_again.lock().unwrap_or_else(PoisonError::into_inner);
            for key in overdue(&keys, &mut look_again, now) {
                context.queue.add_first_look(key, Duration::ZERO);
            }
        }
        {
            let mut index = context.index();
            index.forget_gone(now - SignedDuration::from_mins(10));
            index.settle(now);
        }
        let (agents, cycles) = context.index().sizes();
        for (kind, count) in [("agents", agents), ("cycles", cycles)] {
            let gauge = i64::try_from(count).unwrap_or(i64::MAX);
            context.metrics.objects.get_or_create(&KindLabels { kind: kind.to_owned() }).set(gauge);
        }
        namespaces::read_all(&context).await;
        let hour = minute % TIDY == 0;
        if hour || context.schema.is_outdated() {
            crate::schema::check(&context).await;
        }
        if hour && context.lease.may_act() {
            tidy::tidy(&context, now).await;
        }
        tokio::time::sleep(SWEEP).await;
    }
}

/// Finishes what is in hand and lets the next replica start at once.
async fn drain(context: &Context) -> ExitCode {
    let until = tokio::time::Instant::now() + DRAIN;
    while !context.queue.close() && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if context.lease.may_act() {
        match tokio::time::timeout(ANSWER, context.lease.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(error = %error, "the lease could not be released"),
            Err(_) => tracing::warn!("the lease could not be released in time"),
        }
    }
    // After the Lease, for which the next replica waits.
    context.said.all_written(until).await;
    tracing::info!("ended");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent whose look had panicked was never looked at again.
    #[tokio::test]
    async fn a_look_that_panics_has_failed() {
        let failed = guarded(async { if true { panic!("at the disco") } else { Ok(()) } }).await;
        assert_eq!(failed.unwrap_err().to_string(), "a panic: at the disco");
        assert_eq!(guarded(async { Ok(7) }).await.unwrap(), 7);
    }

    /// kubernetes#121070, cloudnative-pg#10612: whoever lost against another writer waited for minutes.
    #[test]
    fn a_conflict_is_looked_at_again_within_a_second() {
        assert!(CONFLICT_WAIT + watch::SETTLE < Duration::from_secs(1));
    }

    /// kubernetes#128881: a Job was made an hour late, since the delayed wake-up never came. Whatever the queue has
    /// forgotten is found by the next sweep, at most a minute after it was due.
    #[test]
    fn what_the_queue_forgot_is_due_at_the_next_sweep() {
        let now: Timestamp = "2026-12-01T07:00:00Z".parse().unwrap();
        let keys = ["due", "later", "never-looked-at", "hopeless"].map(|name| Key::new("n", name));
        let mut look_again = HashMap::from([
            (keys[0].clone(), Some(now)),
            (keys[1].clone(), Some(now + SignedDuration::from_secs(1))),
            (keys[3].clone(), None),
            (Key::new("n", "gone"), Some(now)),
        ]);
        assert_eq!(overdue(&keys, &mut look_again, now), [keys[0].clone(), keys[2].clone()]);
        let years = now + SignedDuration::from_hours(100_000);
        assert!(
            !overdue(&keys, &mut look_again, years).contains(&keys[3]),
            "no sweep looks where no look helps"
        );
        assert!(!look_again.contains_key(&Key::new("n", "gone")));
        assert!(SWEEP <= Duration::from_mins(1));
    }
}
