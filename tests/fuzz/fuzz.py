"""The differential fuzzer: random training jobs in Lockstep and in live PyTorch. See docs/fuzzing.md; scripts/fuzz starts it."""
import argparse
import multiprocessing
import multiprocessing.queues
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import catalogue
import jobs

ATTEMPTS = 40


def here(*parts):
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", *parts))


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/fuzz",
                                     description="Trains random jobs in Lockstep and in PyTorch, and compares.")
    parser.add_argument("--jobs", type=int, default=200, metavar="N", help="how many (200)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the number of the first one (0)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other jobs (1)")
    parser.add_argument("--ranks", default="1-3", metavar="A-B", help="from how many ranks to how many (1-3)")
    parser.add_argument("--engine", choices=["cpu", "ref"], help="only this one; both are drawn otherwise")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="jobs at the same time")
    parser.add_argument("--seconds", type=float, default=0, help="start no job after so long (0: no limit)")
    parser.add_argument("--replay", metavar="SEED:JOB", help="one job, with all that it says")
    parser.add_argument("--keep", metavar="DIR", default="fuzz-failures", help="where jobs that are off are kept (fuzz-failures)")
    parser.add_argument("--self-test", action="store_true", help="inject mistakes and see that each is caught")
    parser.add_argument("--ignored-keys", action="store_true", help="show for every drawn key whether it would be noticed if ignored")
    parser.add_argument("--command", default=os.environ.get("LOCKSTEP", here("build", "lockstep")), help="the lockstep to test")
    parser.add_argument("--verbose", action="store_true", help="a line for each job")
    options = parser.parse_args()
    first, _, last = options.ranks.partition("-")
    options.ranks = (int(first), int(last or first))
    options.command = os.path.abspath(options.command)
    if not os.access(options.command, os.X_OK):
        parser.error("%s is not there: build it, or name another with --command" % options.command)
    return options


def levels():
    """The vector levels that this machine has, as LOCKSTEP_CPU_LEVEL names them."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = file.read()
    except OSError:
        flags = ""
    found = ["base"] + (["avx2"] if " avx2 " in flags and " fma " in flags else [])
    return found + (["avx512"] if all(" avx512%s " % f in flags for f in ("f", "bw", "dq", "vl")) else [])


def comms(command):
    """Besides shared memory: what else the ranks of one host can speak in this build."""
    words = subprocess.run([command, "doctor"], capture_output=True, text=True).stdout
    return ["gloo"] if "gloo: ready" in words else ["shm"]


def draw(options, kinds, number):
    """The job, and PyTorch's runs of it. A job that PyTorch refuses, or that diverges there, is drawn anew."""
    import judge
    import oracle
    for attempt in range(ATTEMPTS):
        job = jobs.draw(options.seed, number, attempt, kinds, options.ranks, levels(), options.engine, options.comms)
        try:
            return job, judge.Theirs(job)
        except (oracle.Diverged, RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            continue
    raise RuntimeError("job %d:%d: PyTorch refused %d attempts" % (options.seed, number, ATTEMPTS))


def describe(job):
    counts = catalogue.uses(job["config"]["model"], {})
    layers = ", ".join(name for name in counts if "." not in name and name != "Sequential")
    return "%d rank%s, %s%s, %s: %s; %s, %s" % (
        job["ranks"], "s" if job["ranks"] > 1 else "", job["device"], " " + job["level"] if job["device"] == "cpu" else "",
        job["layout"], layers, job["config"]["criterion"]["_target_"], job["config"]["optimizer"]["_target_"])


def keep(options, job, verdict, folder, before):
    """Leaves a folder with the config, the data, both programs' numbers and the command to replay."""
    import numpy as np
    target = os.path.join(options.keep, job["name"].replace(":", "-"))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    if verdict.theirs:
        for name, trace in (("f32", verdict.theirs.plain), ("f64", verdict.theirs.exact)):
            losses = [loss for _, _, loss in trace.batches]
            np.savez(os.path.join(target, "pytorch_%s.npz" % name), losses=losses, **trace.final)
    with open(os.path.join(target, "README.txt"), "w") as file:
        file.write("%s: %s\n\n" % (verdict.status, describe(job)))
        file.write("".join("%10.3g  %s\n" % entry for entry in verdict.report if entry[0] > 0.5))
        file.write("\nBefore it was made smaller:\n%10.3g  %s\n" % before.report[0])
        if verdict is before:
            file.write("It could not be made smaller, or did not fail again.\n")
        file.write("\nThe whole job again:  scripts/fuzz --replay %s --ranks %d-%d%s\n"
                   % (job["name"], *options.ranks, " --engine " + options.engine if options.engine else ""))
        ranks = " --nproc %d --comm %s" % (job["ranks"], job["comm"]) if job["ranks"] > 1 else ""
        file.write("This one:             cd %s && LOCKSTEP_CPU_LEVEL=%s taskset -c 0-%d lockstep run -C config.yml --device %s%s\n"
                   % (target, job["level"], job["threads"] - 1, job["device"], ranks))
    return target


def work(options, kinds, numbers, results):
    """One worker: trains the jobs whose numbers it takes from the queue."""
    import torch
    torch.set_num_threads(1)
    import judge
    import smaller
    folder = tempfile.mkdtemp(prefix="lockstep-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    for number in iter(numbers.get, None):
        result = {"number": number, "status": "broken", "line": ""}
        begin = time.time()
        try:
            job, theirs = draw(options, kinds, number)
            verdict = judge.judge(options.command, job, folder, theirs)
            result.update(status=verdict.status, excess=verdict.excess, chaos=verdict.chaos(), job=describe(job),
                          uses=catalogue.uses(job["config"], {}), line=verdict.report[0][1])
            if verdict.status != "equal":
                least, last = smaller.smaller(options.command, job, verdict, folder)
                result["kept"] = keep(options, least, last, folder, verdict)
                result["line"] = last.report[0][1]
                result["job"] = describe(least)
        except Exception:
            result["line"] = traceback.format_exc(limit=-2)
        result["seconds"] = time.time() - begin
        results.put(result)
    shutil.rmtree(folder, ignore_errors=True)


def start_workers(options, kinds):
    numbers, results = multiprocessing.Queue(), multiprocessing.Queue()
    last = options.first + options.jobs
    for number in range(options.first, last):
        numbers.put(number)
    for _ in range(options.workers):
        numbers.put(None)
    workers = [multiprocessing.Process(target=work, args=(options, kinds, numbers, results)) for _ in range(options.workers)]
    for worker in workers:
        worker.start()
    return workers, results, numbers


def fuzz(options, kinds):
    workers, results, numbers = start_workers(options, kinds)
    begin, totals, counts, done, chaotic, worst = time.time(), {}, {}, 0, 0, 0.0
    while done < options.jobs and (any(w.is_alive() for w in workers) or not results.empty()):
        try:
            result = results.get(timeout=1)
        except multiprocessing.queues.Empty:
            continue
        done += 1
        totals[result["status"]] = totals.get(result["status"], 0) + 1
        chaotic += result.get("chaos", 0) > 1e-2
        for name, count in result.get("uses", {}).items():
            counts[name] = counts.get(name, 0) + count
        if result["status"] == "equal":
            worst = max(worst, result["excess"])
        if options.verbose or result["status"] != "equal":
            print("%d:%d %s (%.2g, chaos %.1g, %.1f s): %s\n    %s%s" % (
                options.seed, result["number"], result["status"], result.get("excess", 0), result.get("chaos", 0), result["seconds"],
                result.get("job", ""), result["line"], "\n    kept in " + result["kept"] if "kept" in result else ""), flush=True)
        if options.seconds and time.time() - begin > options.seconds:
            while not numbers.empty():
                numbers.get()
            for _ in workers:
                numbers.put(None)
            options.seconds = 0
    for worker in workers:
        worker.join()
    missing = catalogue.not_drawn(kinds, counts)
    print("not drawn: " + ", ".join(missing))
    print("seed %d: %d jobs in %.0f s: %s; %d chaotic; the worst equal one took %.0f%% of its tolerance" % (
        options.seed, done, time.time() - begin, ", ".join("%d %s" % (n, s) for s, n in sorted(totals.items())), chaotic, 100 * worst))
    return 0 if set(totals) <= {"equal"} and done > 0 else 1


def replay(options, kinds):
    import torch
    torch.set_num_threads(1)
    import judge
    seed, _, number = options.replay.partition(":")
    options.seed = int(seed)
    job, theirs = draw(options, kinds, int(number))
    print(describe(job) + "\n" + jobs.config_text(job["config"]))
    verdict = judge.judge(options.command, job, tempfile.mkdtemp(prefix="lockstep-fuzz-"), theirs)
    for entry in verdict.report:
        print("%10.3g  %s" % entry)
    print("%s: %s (chaos %.1g)" % (options.replay, verdict.status, verdict.chaos()))
    return 0 if verdict.status == "equal" else 1


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: /usr/bin/python3 has no PyTorch (Debian's python3-torch)", file=sys.stderr)
        return 77
    options = arguments()
    kinds, options.comms = catalogue.read(options.command), comms(options.command)
    if options.self_test or options.ignored_keys:
        import mistakes
        return (mistakes.self_test if options.self_test else mistakes.key_test)(options, kinds)
    return replay(options, kinds) if options.replay else fuzz(options, kinds)


if __name__ == "__main__":
    sys.exit(main())
