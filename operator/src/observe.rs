//! What only a look at the API server tells: why a pod does not start, and how a Job ended.

use cicada_contract::CycleReport;
use cicada_operator_core::{
    active::FIRST_LOOK,
    job::{CONTAINER, Purpose},
    observed::{JobView, LookView, ReportJob, Waiting},
    result::JobEnd,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{ResourceExt as _, api::ListParams};

use crate::{
    context::Context,
    index::{JobEntry, Key},
};

/// Label that Kubernetes puts on a Job's pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The Job of a cycle as decisions want it; looks at its pod where the Job alone does not say enough.
pub async fn job(context: &Context, cycle_uid: &str, now: Timestamp) -> Result<Option<JobView>, kube::Error> {
    let Some((key, entry)) = context.index().job(cycle_uid, Purpose::Cycle) else { return Ok(None) };
    let mut view = with_end(context, &key, &entry).await?;
    let due = entry.looked.is_none_or(|at| now.duration_since(at) >= FIRST_LOOK / 2);
    if entry.ended.is_none() && !view.started && !view.suspended && now >= view.released + FIRST_LOOK && due {
        let (waiting, started) = why_waiting(context, &key, &view).await?;
        context.index().job_waits(&key, waiting.clone(), started, now);
        view.waiting = waiting;
        view.started |= started;
    }
    view.report_job = report_job(context, cycle_uid).await?;
    Ok(Some(view))
}

/// The Job that deletes an agent's memory, with its end if it has ended.
pub async fn delete_job(context: &Context, agent_uid: &str) -> Result<Option<JobView>, kube::Error> {
    let Some((key, entry)) = context.index().job(agent_uid, Purpose::Delete) else { return Ok(None) };
    let view = with_end(context, &key, &entry).await?;
    Ok(Some(view).filter(|v| !v.deleting))
}

/// A Job with its end, which is looked up and remembered once.
async fn with_end(context: &Context, key: &Key, entry: &JobEntry) -> Result<JobView, kube::Error> {
    let mut view = entry.view.clone();
    if view.end.is_none() && entry.ended.is_some() {
        let end = end_of(context, key, entry).await?;
        context.index().job_ended(key, end.clone());
        view.end = Some(end);
    }
    Ok(view)
}

async fn report_job(context: &Context, cycle_uid: &str) -> Result<Option<ReportJob>, kube::Error> {
    let found = context.index().job(cycle_uid, Purpose::Report);
    match found {
        Some((key, entry)) => Ok(Some(read_report(context, &key, &entry).await?)),
        None => Ok(None),
    }
}

async fn read_report(context: &Context, key: &Key, entry: &JobEntry) -> Result<ReportJob, kube::Error> {
    if entry.ended.is_none() {
        return Ok(ReportJob::Running);
    }
    let end = with_end(context, key, entry).await?.end;
    let report = end.and_then(|end| end.message).and_then(|m| CycleReport::parse(&m).ok());
    Ok(ReportJob::Ended(Box::new(report)))
}

/// The Job that looks into the store for an agent: it has the agent's UID in the place of a cycle's.
pub async fn look(context: &Context, agent_uid: &str) -> Result<Option<LookView>, kube::Error> {
    let found = context.index().job(agent_uid, Purpose::Report);
    let Some((key, entry)) = found else { return Ok(None) };
    let found = read_report(context, &key, &entry).await?;
    let JobView { name, uid, deleting, .. } = entry.view;
    Ok(Some(LookView { name, uid, deleting, found }))
}

async fn pods(context: &Context, job: &Key) -> Result<Vec<Pod>, kube::Error> {
    let selector = ListParams::default().labels(&format!("{JOB_NAME}={}", job.name));
    Ok(context.api::<Pod>(&job.namespace).list(&selector).await?.items)
}

/// Reads the newest pod once, when its Job has ended.
async fn end_of(context: &Context, key: &Key, entry: &JobEntry) -> Result<JobEnd, kube::Error> {
    let (at, complete, reason) = entry.ended.clone().unwrap_or((Timestamp::now(), false, None));
    let mut end = JobEnd { at: Some(at), complete, reason, attempts: entry.attempts, ..JobEnd::default() };
    let mut pods = pods(context, key).await?;
    pods.sort_by_key(|p| p.creation_timestamp().map(|t| t.0));
    // A Job that is Complete has one pod that succeeded; it counts, whatever came after it.
    let succeeded = pods
        .iter()
        .position(|p| complete && p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded"));
    let Some(pod) = succeeded.map(|i| &pods[i]).or(pods.last()) else { return Ok(end) };
    let status = pod.status.clone().unwrap_or_default();
    end.pod_reason.clone_from(&status.reason);
    let containers = status.container_statuses.unwrap_or_default();
    let Some(container) = containers.iter().find(|c| c.name == CONTAINER) else { return Ok(end) };
    end.image =
        Some(container.image_id.clone()).filter(|i| !i.is_empty()).or_else(|| Some(container.image.clone()));
    if let Some(terminated) = container.state.as_ref().and_then(|s| s.terminated.clone()) {
        end.exit_code = Some(terminated.exit_code);
        end.message = terminated.message;
        end.pod_reason = end.pod_reason.or(terminated.reason);
    }
    Ok(end)
}

/// Why the pod of a Job has not started; also whether it has.
async fn why_waiting(
    context: &Context,
    key: &Key,
    view: &JobView,
) -> Result<(Option<Waiting>, bool), kube::Error> {
    let pods = pods(context, key).await?;
    let Some(pod) = pods.iter().max_by_key(|p| p.creation_timestamp().map(|t| t.0)) else {
        return Ok((Some(no_pod(context, key, view).await), false));
    };
    Ok(pod_waits(pod))
}

fn pod_waits(pod: &Pod) -> (Option<Waiting>, bool) {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let now: Vec<_> = containers.iter().filter_map(|c| c.state.clone()).collect();
    // One container may wait for its image while the other runs already.
    let no_image =
        now.iter().filter_map(|s| s.waiting.as_ref()).find(|w| is_image_problem(w.reason.as_deref()));
    if no_image.is_none() && now.iter().any(|s| s.running.is_some() || s.terminated.is_some()) {
        return (None, true);
    }
    let no_image = no_image.cloned();
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled {
        return (
            Some(Waiting {
                reason: "Unschedulable".into(),
                message: condition.message.clone().unwrap_or_default(),
            }),
            false,
        );
    }
    let waiting = no_image.or_else(|| now.into_iter().find_map(|s| s.waiting));
    let (reason, message) =
        waiting.map(|w| (w.reason.unwrap_or_default(), w.message.unwrap_or_default())).unwrap_or_default();
    let reason = match reason.as_str() {
        reason if is_image_problem(Some(reason)) => "ImagePullBackOff",
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => "ContainerConfig",
        _ => "PodStarting",
    };
    (Some(Waiting { reason: reason.into(), message }), false)
}

fn is_image_problem(reason: Option<&str>) -> bool {
    let known =
        ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"];
    reason.is_some_and(|reason| known.contains(&reason))
}

/// Without a pod only an event says why: quota, admission, a missing service account.
async fn no_pod(context: &Context, key: &Key, view: &JobView) -> Waiting {
    let selector = ListParams::default().fields(&format!("involvedObject.uid={}", view.uid));
    let events =
        context.api::<Event>(&key.namespace).list(&selector).await.map(|l| l.items).unwrap_or_default();
    let failed = events.iter().filter(|e| e.reason.as_deref() == Some("FailedCreate"));
    let message = failed.filter_map(|e| e.message.clone()).next_back().unwrap_or_default();
    let reason = if message.contains("exceeded quota") {
        "QuotaExceeded"
    } else if message.is_empty() {
        "PodStarting"
    } else {
        "PodRejected"
    };
    Waiting { reason: reason.into(), message: cicada_contract::text::cut(&message, 256) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waits(status: &serde_json::Value) -> (Option<String>, bool) {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap();
        let (waiting, started) = pod_waits(&pod);
        (waiting.map(|w| w.reason), started)
    }

    fn container(state: &serde_json::Value) -> serde_json::Value {
        json!({"containerStatuses": [{"name": "cycle", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
    }

    #[test]
    fn a_pod_that_waits_says_why() {
        let unschedulable = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]});
        assert_eq!(waits(&unschedulable), (Some("Unschedulable".into()), false));
        for (word, reason) in [
            ("ErrImageNeverPull", "ImagePullBackOff"),
            ("ImagePullBackOff", "ImagePullBackOff"),
            ("CreateContainerConfigError", "ContainerConfig"),
            ("ContainerCreating", "PodStarting"),
        ] {
            assert_eq!(
                waits(&container(&json!({"waiting": {"reason": word}}))),
                (Some(reason.into()), false)
            );
        }
        assert_eq!(waits(&container(&json!({"running": {}}))), (None, true));
        assert_eq!(waits(&json!({})), (Some("PodStarting".into()), false));
        // Two containers: the user's image is missing, ours runs or has given up waiting.
        for ours in [json!({"running": {}}), json!({"terminated": {"exitCode": 26}})] {
            let mut both = container(&json!({"waiting": {"reason": "ErrImagePull"}}));
            let cycle = container(&ours)["containerStatuses"][0].clone();
            both["containerStatuses"].as_array_mut().unwrap().push(cycle);
            assert_eq!(waits(&both), (Some("ImagePullBackOff".into()), false));
        }
    }
}
