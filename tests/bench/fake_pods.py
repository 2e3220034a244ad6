#!/usr/bin/env python3
"""Ends every pending pod that a Job made, so that a control plane without nodes can be measured.

usage: fake_pods.py SERVER TOKEN [SECONDS-UNTIL-END]
A pod succeeds with a report as its termination message; one with the label fake=stay stays as it is, one with
fake-seconds=N takes that long, one with fake-wakes=AGENT has sent that agent a message, and one with fake-pending=N
leaves N messages that wait for their delivery.
"""
import http.client
import json
import ssl
import sys
import threading
import time
import queue
from urllib.parse import urlparse

server, token = urlparse(sys.argv[1]), sys.argv[2]
delay = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
context = ssl._create_unverified_context()
work = queue.Queue()
epochs = {}


def connection(timeout=300):
    return http.client.HTTPSConnection(server.hostname, server.port, context=context, timeout=timeout)


def headers(kind="application/json"):
    return {"Authorization": "Bearer " + token, "Content-Type": kind}


def report(pod):
    labels = pod["metadata"].get("labels", {})
    agent = labels.get("cicada.dev/agent", "")
    epoch = epochs[agent] = epochs.get(agent, 0) + 1
    return json.dumps({
        "version": 1, "result": "done", "outcome": "done", "attempt": 1,
        "wakes": [w for w in [labels.get("fake-wakes")] if w],
        "pending": {"outbox": int(labels.get("fake-pending", 0))},
        "memory": {"snapshot": "%d-0-fake" % epoch, "epoch": epoch, "size": 4096, "archiveSize": 512, "tables": 1,
                   "persistedAt": int(time.time())},
        "tables": [{"name": "prices", "rows": 560, "before": 520, "inserted": 40, "updated": 3}],
        "usage": {"modelCalls": 5, "toolCalls": 9, "inputTokens": 5200, "outputTokens": 210, "cost": 0.02},
        "phases": [{"phase": "restore", "ms": 120}, {"phase": "execute", "ms": 9000}, {"phase": "persist", "ms": 80}],
    })


def status(pod, phase):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = "True" if phase == "Running" else "False"
    containers = []
    for c in pod["spec"]["containers"]:
        state = {"running": {"startedAt": now}}
        if phase == "Succeeded":
            state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now,
                                    "message": report(pod)}}
        containers.append({"name": c["name"], "image": c["image"], "imageID": "sha256:fake", "ready": ready == "True",
                           "restartCount": 0, "state": state})
    kind = {"type": "Ready", "status": ready, "lastTransitionTime": now}
    return {"status": {"phase": phase, "startTime": now, "conditions": [kind], "containerStatuses": containers}}


def worker():
    c = connection(10)
    while True:
        due, pod, phase = work.get()
        time.sleep(max(0, due - time.time()))
        path = "/api/v1/namespaces/%s/pods/%s/status" % (pod["metadata"]["namespace"], pod["metadata"]["name"])
        # An API server that is started again needs some seconds; a pod that is given up here never ends.
        missing = 0
        for _ in range(300):
            try:
                c.request("PATCH", path, json.dumps(status(pod, phase)), headers("application/merge-patch+json"))
                answer = c.getresponse()
                answer.read()
                missing += answer.status == 404
                # An API server that has just started answers 404 for what it does not know yet.
                if answer.status < 300 or missing > 50:
                    break
            except (OSError, http.client.HTTPException):
                c = connection(10)
            time.sleep(0.2)


def main():
    for _ in range(8):
        threading.Thread(target=worker, daemon=True).start()
    seen = set()
    while True:
        try:
            c = connection()
            c.request("GET", "/api/v1/pods", headers=headers())
            listed = json.loads(c.getresponse().read())
            version = listed["metadata"]["resourceVersion"]
            for pod in listed["items"]:
                take(pod, seen)
            c.request("GET", "/api/v1/pods?watch=1&timeoutSeconds=20&resourceVersion=" + version, headers=headers())
            answer = c.getresponse()
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                if event["type"] != "DELETED":
                    take(event["object"], seen)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            time.sleep(0.5)


def take(pod, seen):
    uid = pod["metadata"]["uid"]
    if pod["metadata"].get("labels", {}).get("fake") == "stay":
        return
    if uid in seen or pod.get("status", {}).get("phase") not in (None, "Pending") or not pod["metadata"].get("ownerReferences"):
        return
    seen.add(uid)
    longer = float(pod["metadata"].get("labels", {}).get("fake-seconds", 0))
    due = (time.time() + longer + delay, pod, "Succeeded")
    # Each worker waits for the pod that it has, so long ones wait elsewhere.
    threading.Timer(longer, work.put, [due]).start() if longer else work.put(due)


main()
