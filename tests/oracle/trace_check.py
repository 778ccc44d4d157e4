"""A strict reader of LOGDIR/trace.json. Usage: trace_check.py FILE RANKS TRAIN_BATCHES

Chrome's trace format, as Perfetto reads it: an object with "traceEvents"; complete events ("X") with ts and
dur in microseconds. Exits with a sentence if anything is not as it should be.
"""
import decimal
import json
import sys

KINDS = {"forward", "criterion", "backward", "update", "program", "communication", "loader", "callback",
         "compile", "batch", "phase"}


def check(condition, *words):
    if not condition:
        sys.exit("trace: " + " ".join(str(w) for w in words))


def check_event(event):
    check(event["ph"] in "XM", "unknown phase", event)
    check(type(event["pid"]) is int and type(event["tid"]) is int and event["name"], "no place", event)
    if event["ph"] == "M":
        check(event["name"] in ("process_name", "process_sort_index", "thread_name"), "metadata", event)
        return
    check(set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}, "fields", event)
    check(event["cat"] in KINDS, "unknown category", event)
    check(event["ts"] >= 0 and event["dur"] >= 0, "before the trace, or backwards", event)


def check_thread(events):
    """Sorted by their begin, each inside the one that is open; exact, since times are decimals."""
    last, open_until = decimal.Decimal(0), []
    for event in events:
        check(event["ts"] >= last, "not in order", event)
        last = event["ts"]
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        check(not open_until or end <= open_until[-1], "leaves the span that it lies in", event)
        open_until.append(end)


def main(path, ranks, batches):
    trace = json.load(open(path), parse_float=decimal.Decimal)
    events = trace["traceEvents"]
    for event in events:
        check_event(event)
    spans = [e for e in events if e["ph"] == "X"]
    check({e["pid"] for e in spans} == set(range(ranks)), "ranks", {e["pid"] for e in spans})
    named = {e["pid"] for e in events if e["name"] == "process_name"}
    check(named == set(range(ranks)), "names of ranks", named)
    check(trace["otherData"]["ranks"] == ranks and trace["otherData"]["train_batches"] == batches,
          trace["otherData"])
    for rank in range(ranks):
        own = [e for e in spans if e["pid"] == rank]
        for tid in {e["tid"] for e in own}:
            check_thread([e for e in own if e["tid"] == tid])
        kinds = {e["cat"] for e in own}
        wanted = {"forward", "criterion", "backward", "update", "loader", "callback", "compile", "batch",
                  "phase"} | ({"communication"} if ranks > 1 else set())
        check(wanted <= kinds, "rank", rank, "lacks", wanted - kinds)
        train = [e for e in own if e["name"] == "train batch"]
        check([e["args"]["batch"] for e in train] == list(range(1, batches + 1)), "batches of rank", rank)
        for name in ("linear", "linear_grad", "cross_entropy", "update"):
            check(any(e["name"] == name for e in own), "rank", rank, "has no", name)
        check(any(e["args"].get("at", "").startswith("layer 1") for e in own), "no layer is named")
    # One time line: what all ranks do together overlaps.
    epochs = [e for e in spans if e["name"] == "epoch"]
    check(len(epochs) == ranks, "epochs", len(epochs))
    check(max(e["ts"] for e in epochs) < min(e["ts"] + e["dur"] for e in epochs), "ranks are apart in time")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
