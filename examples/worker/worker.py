"""A worker in Python, standard library only: docs/worker-api.md says what it must keep, and why.
python3 worker.py http://127.0.0.1:3000 http://127.0.0.1:8080/mails     (OPLEDGER_KEY: a key with the scope `work`)"""
import json, os, signal, socket, sys, time, urllib.error, urllib.request

service, provider = sys.argv[1], sys.argv[2]
me = {"host": socket.gethostname(), "pid": os.getpid(), "code_version": "mailer 1",
      "types": [{"name": "welcome-mail", "version": 1}], "wait_seconds": 20}
stopping = False

def stop(*_):
    global stopping
    stopping = True

def call(url, body, timeout, headers=()):
    data, said = json.dumps(body).encode(), {"Content-Type": "application/json", **dict(headers)}
    request = urllib.request.Request(url, data, said)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read() or b"{}")

def ask(path, body):
    key = os.environ.get("OPLEDGER_KEY")
    while True:  # an answer that does not come: the same again, and nothing is counted twice
        asked = time.monotonic()
        try:
            return asked, call(service + path, body, 60, {"Authorization": "Bearer " + key} if key else {})
        except urllib.error.HTTPError as refusal:
            if refusal.code < 500 and refusal.code != 429:
                raise SystemExit(f"{path}: {refusal.read().decode()}")
        except (OSError, ValueError):
            pass
        if "worker" in body or "lease" in body:
            body = {**body, "lost_answer": True}  # all that was begun is in the results
        time.sleep(1)

def send(item, asked):
    result = {"effect_key": item["effect_key"], "send": item["send"]}
    if stopping or time.monotonic() >= asked + item["send_within_ms"] / 1000:
        return {**result, "state": "unsent"}  # too late: somebody may take it for never sent
    try:
        # two seconds to connect and two to answer: the call_timeout_ms of the type
        done = call(provider, item["input"], 2, {"Idempotency-Key": item["effect_key"]})
        return {**result, "state": "applied", "effect_ref": str(done["id"])}
    except urllib.error.HTTPError as refusal:
        if refusal.code in (400, 422):
            return {**result, "state": "failed", "failure_class": "validation_rejected"}
        return {**result, "state": "uncertain", "reason_code": str(refusal.code), "downstream_error": True}
    except Exception as error:  # it may have arrived: never a guess
        return {**result, "state": "uncertain", "message": repr(error)[:200], "downstream_error": True}

signal.signal(signal.SIGTERM, stop)
me["worker"] = ask("/worker/claims", me)[1]["worker"]
print("ready", flush=True)
while not stopping:
    asked, answer = ask("/worker/claims", me)
    me["worker"] = answer["worker"]
    while answer["batch"]:
        batch = answer["batch"]
        results = [send(item, asked) for item in batch["items"]]
        said = {"lease": batch["lease"], "results": results, "max_items": 0 if stopping else 4}
        asked, answer = ask("/worker/results", said)
