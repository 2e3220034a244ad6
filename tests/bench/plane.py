"""A control plane without nodes, its audit log, and objects by the thousand. Used by `operator`."""
import base64
import http.client
import json
import os
import pathlib
import queue
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ.get("CICADA_TOOLS", ROOT / "target/tools/bin"))
BIN = pathlib.Path(os.environ.get("CICADA_BIN", ROOT / "target/release"))
ETCD, PEER, API, KCM = 23379, 23380, 23443, 23257
OURS, CRON = "bench", "cron"
MERGE = "application/merge-patch+json"
# Who is who in the audit log.
TOKENS = {"bench": "bench", "operator": "operator", "kcm": "kcm"}
AUDIT = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [operator]}
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
"""
SSL = ssl._create_unverified_context()


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


def until(what, seconds, ask, pause=0.5):
    """Asks until there is a true answer, and returns it."""
    end = time.time() + seconds
    while True:
        try:
            if answer := ask():
                return answer
        except (OSError, ValueError, http.client.HTTPException):
            pass
        if time.time() > end:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(pause)


def stop(child, how=signal.SIGTERM):
    if child.poll() is None:
        child.send_signal(how)
        try:
            child.wait(25)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Plane:
    """Etcd (without fsync), API server and controllers in a folder of their own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cicada-bench-"))
        self.children = []

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            stop(child)
        if not os.environ.get("KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name, *command, env=None):
        """A child that the kernel ends with us."""
        log = open(self.folder / (name + ".log"), "ab")
        command = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})})
        self.children.append(child)
        return child

    def kubeconfig(self, who):
        path = self.folder / f"kubeconfig-{who}"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{API}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": TOKENS[who]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}))
        return path

    def up(self):
        f = self.folder
        (f / "pki").mkdir()
        subprocess.run(["openssl", "genrsa", "-out", f / "pki/sa.key", "2048"], check=True, stderr=subprocess.DEVNULL)
        (f / "tokens.csv").write_text("".join(f"{token},{who},{who},system:masters\n" for who, token in TOKENS.items()))
        (f / "audit.yaml").write_text(AUDIT)
        local = "http://127.0.0.1:{}".format
        self.start("etcd", TOOLS / "server", "--data-dir", f / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
                   "--listen-client-urls", local(ETCD), "--advertise-client-urls", local(ETCD),
                   "--listen-peer-urls", local(PEER), "--initial-advertise-peer-urls", local(PEER),
                   "--initial-cluster", "default=" + local(PEER), "--quota-backend-bytes", 8 << 30)
        self.start("apiserver", TOOLS / "kube-apiserver", f"--etcd-servers={local(ETCD)}", f"--cert-dir={f}/pki",
                   f"--secure-port={API}", "--bind-address=127.0.0.1", "--service-cluster-ip-range=10.98.0.0/16",
                   "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={f}/pki/sa.key",
                   f"--service-account-signing-key-file={f}/pki/sa.key", f"--token-auth-file={f}/tokens.csv",
                   "--authorization-mode=RBAC", f"--audit-policy-file={f}/audit.yaml", f"--audit-log-path={f}/audit.log",
                   "--max-requests-inflight=1600", "--max-mutating-requests-inflight=800")
        until("the API server is ready", 180, lambda: request("GET", "/readyz")[0] == 200)
        self.start("kcm", TOOLS / "kube-controller-manager", f"--kubeconfig={self.kubeconfig('kcm')}", "--leader-elect=false",
                   f"--cert-dir={f}/pki/kcm", f"--secure-port={KCM}", f"--root-ca-file={f}/pki/apiserver.crt",
                   f"--service-account-private-key-file={f}/pki/sa.key", "--kube-api-qps=1000", "--kube-api-burst=2000",
                   "--concurrent-job-syncs=50", "--concurrent-cron-job-syncs=5",
                   "--controllers=job-controller,garbage-collector-controller,ttl-after-finished-controller,"
                   "namespace-controller,cronjob-controller,serviceaccount-controller")
        crds = subprocess.run([BIN / "cicada-operator", "crds"], check=True, capture_output=True).stdout
        subprocess.run([TOOLS / "kubectl", "--kubeconfig", self.kubeconfig("bench"), "apply", "--server-side", "-f", "-"],
                       input=crds, check=True, stdout=subprocess.DEVNULL)
        for name in (OURS, CRON):
            request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            until("its service account is there", 120, lambda: request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
        until("the definitions are served", 120, lambda: request("GET", path("cycles"))[0] == 200)
        self.start("fake_pods", sys.executable, ROOT / "tests/bench/fake_pods.py", f"https://127.0.0.1:{API}", TOKENS["bench"], 1)

    def audit(self, since, until=float("inf")):
        """What the API server answered with success, as (time of receipt, user, user agent, what, event)."""
        for line in open(self.folder / "audit.log"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            at = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp()
            if since <= at < until and event["stage"] == "ResponseComplete" and event["responseStatus"]["code"] < 300:
                ref = event.get("objectRef", {})
                what = " ".join(filter(None, [event["verb"], "/".join(filter(None, [ref.get("resource"), ref.get("subresource")]))]))
                yield at, event["user"]["username"], event.get("userAgent", ""), what, event


def path(kind, name="", namespace=None):
    group = {"cronjobs": "batch/v1", "agents": "cicada.dev/v1alpha1", "cycles": "cicada.dev/v1alpha1"}[kind]
    plural = {"agents": "persistentagents", "cycles": "agentcycles"}.get(kind, kind)
    return f"/apis/{group}/namespaces/{namespace or (CRON if kind == 'cronjobs' else OURS)}/{plural}" + (f"/{name}" if name else "")


def request(method, where, body=None, kind="application/json", c=None):
    c = c or http.client.HTTPSConnection("127.0.0.1", API, context=SSL, timeout=120)
    headers = {"Authorization": "Bearer " + TOKENS["bench"], "Content-Type": kind, "User-Agent": "bench"}
    c.request(method, where, json.dumps(body) if body is not None else None, headers)
    answer = c.getresponse()
    text = answer.read()
    try:
        return answer.status, json.loads(text or b"{}")
    except ValueError:
        return answer.status, {}


def many(calls, workers=8):
    """Makes requests (method, path, body, content type) in parallel; each must succeed."""
    work, failed = queue.Queue(), []
    for call in calls:
        work.put(call)

    def run():
        c = http.client.HTTPSConnection("127.0.0.1", API, context=SSL, timeout=120)
        while True:
            try:
                call = work.get_nowait()
            except queue.Empty:
                return
            status = request(*call, c=c)[0]
            if status >= 300:
                failed.append((status, call[:2]))

    threads = [threading.Thread(target=run) for _ in range(workers)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed, such as {failed[0]}")


def etcd(what, body):
    c = http.client.HTTPConnection("127.0.0.1", ETCD, timeout=60)
    c.request("POST", "/v3/kv/" + what, json.dumps(body))
    answer = c.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise SystemExit(f"etcd {what}: {answer.status} {text[:200]}")
    return json.loads(text)


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def stored(key):
    """An object as the API server has stored it."""
    return base64.b64decode(etcd("range", {"key": b64(key)})["kvs"][0]["value"])


def store(pairs):
    """Puts objects into the API server's store: the only way to have tens of thousands in seconds."""
    batch = []
    for key, value in pairs:
        batch.append({"requestPut": {"key": b64(key), "value": b64(value)}})
        if len(batch) == 100:
            etcd("txn", {"success": batch})
            batch = []
    if batch:
        etcd("txn", {"success": batch})
