//! What a real kubelet and kernel do to a pod in the middle of a cycle. Each cycle is held while it uploads
//! its snapshot; whatever happens to its pod then, the row of that cycle is in the memory once.

use cicada_tests::{
    cluster::Cluster,
    gate::{Gate, Hold},
    memory::Unpacked,
    namespace::Namespace,
    wait,
};
use serde_json::{Value, json};

use crate::agents::{COUNTER, cycle, sql_agent, store_behind};

/// Does `harm` to the pod of a held cycle and lets the cycle go on.
fn survives(test: &str, harm: impl Fn(&Namespace, &str)) -> Value {
    let ns = Namespace::new(test);
    let gate = Gate::new(&Cluster::get().s3_address());
    ns.apply(&sql_agent("worker", COUNTER, &store_behind(&gate)));
    ns.create(&cycle("first", "worker"));
    assert_eq!(ns.wait_for_cycle("first", 120)["phase"], "Succeeded");
    gate.hold(Hold::Request, &["PUT ", "/snapshots/"], 0);
    ns.create(&cycle("second", "worker"));
    gate.wait_held(90);
    let pod = ns.wait_for_running_pod(30);
    harm(&ns, &pod);
    gate.release();
    let status = ns.wait_for_cycle("second", 240);
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs"), "2");
    ns.create(&cycle("third", "worker"));
    assert_eq!(ns.wait_for_cycle("third", 120)["phase"], "Succeeded", "and the agent goes on");
    assert_eq!(Unpacked::check(&ns.folder("worker")).sql("SELECT count(*) FROM runs"), "3");
    status
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_deleted_pod_loses_nothing() {
    survives("pod-deleted", |ns, pod| {
        ns.kubectl(&["delete", "pod", pod, "--wait=false"]).must();
    });
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn an_evicted_pod_loses_nothing() {
    survives("pod-evicted", |ns, pod| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": ns.name}});
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", ns.name);
        let args = ["create", "--raw", &path, "--filename", "-"];
        ns.cluster().kubectl_with(&ns.name, &args, &eviction.to_string()).must();
    });
}

/// Fills the memory of a container from within its cgroup. The kernel then kills the process that it thinks
/// the least of: the container's own are put first, since a pod with equal requests and limits is nearly
/// protected.
fn hog_beside(processes: &[i32]) -> std::process::Child {
    for pid in processes {
        std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
    }
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", processes[0])).unwrap();
    let of = |start: &str, root: &str| {
        let mut lines = cgroups.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(_, rest)| rest.strip_prefix(start)).map(|path| format!("{root}{path}/cgroup.procs"))
    };
    let procs = of("memory:", "/sys/fs/cgroup/memory")
        .or_else(|| of(":", "/sys/fs/cgroup"))
        .expect("a memory cgroup");
    // Three, so that none of them alone is larger than the limit, which is what first place is worth.
    let script = format!("echo $$ > {procs}; for n in 1 2 3; do timeout 20 tail /dev/zero & done; wait");
    std::process::Command::new("sh").args(["-ec", &script]).spawn().unwrap()
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_pod_out_of_memory_loses_nothing() {
    let status = survives("pod-oom", |ns, pod| {
        let mut hog = hog_beside(&ns.cluster().container_processes(&ns.name, pod, "cycle"));
        wait::until("the container is killed for its memory", 60, || {
            let pods = ns.list("pods");
            let pod = pods.into_iter().find(|p| p["metadata"]["name"] == pod);
            pod.is_none_or(|pod| pod["status"]["phase"] != "Running").then_some(())
        });
        let _ = hog.kill();
        hog.wait().unwrap();
    });
    assert!(status["attempts"].as_u64() >= Some(2), "{status:#}");
}

#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_pod_that_stood_still_loses_nothing() {
    survives("pod-stopped", |ns, pod| {
        let signal = |name: &str| send(name, &ns.cluster().container_processes(&ns.name, pod, "cycle"));
        signal("-STOP");
        std::thread::sleep(std::time::Duration::from_secs(20));
        signal("-CONT");
    });
}

fn send(signal: &str, processes: &[i32]) {
    let pids: Vec<String> = processes.iter().map(ToString::to_string).collect();
    assert!(std::process::Command::new("kill").arg(signal).args(&pids).status().unwrap().success());
}

/// The kubelet of the one node, standing still; it goes on with the value that stands for it.
struct StoppedKubelet(i32);

impl StoppedKubelet {
    fn new() -> Self {
        let pid = std::fs::read_to_string(Cluster::get().state().join("kubelet.pid")).unwrap();
        let this = Self(pid.trim().parse().unwrap());
        send("-STOP", &[this.0]);
        this
    }
}

impl Drop for StoppedKubelet {
    fn drop(&mut self) {
        send("-CONT", &[self.0]);
    }
}

/// cloudnative-pg#10859, #9370: a run whose pod had gone with its node was active for ever.
#[test]
#[ignore = "needs the test cluster: tests/run"]
fn a_lost_node_that_comes_back_has_no_second_writer() {
    survives("node-lost", |ns, pod| {
        // Nobody ends the container, and the API server forgets the pod, as it does for a node that is gone.
        let kubelet = StoppedKubelet::new();
        ns.kubectl(&["delete", "pod", pod, "--force", "--grace-period=0", "--wait=false"]).must();
        wait::until("the Job has another pod", 60, || {
            let pods = ns.list("pods");
            pods.iter().any(|p| p["metadata"]["name"] != pod).then_some(())
        });
        drop(kubelet);
    });
}
