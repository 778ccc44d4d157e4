"""Disturbs training jobs of real processes at random moments, and compares their weights with those of undisturbed jobs.

A job is one of:
  local      forked ranks with --max-restarts: the command itself goes on after each fault
  gloo       ranks that are started one by one and speak Gloo: after each fault all survivors must end, and all
             ranks are started again with --autoresume last
  hand       ranks that are started one by one with --max-restarts and share memory: the ranks meet again
  hand-gloo  the same over Gloo
  mpi        the same under mpirun

A fault is SIGKILL, SIGSTOP for a moment and then SIGCONT, or SIGTERM, to a random rank at a random moment of the job. Job I of seed S is
always the same schedule; where the moment falls depends on the machine."""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

JOIN_S = 20  # nobody can name a rank that never came: the others wait this long for it
CONFIG = '''runner:
  _target_: SupervisedRunner
  model: {_var_: model, _target_: Sequential, args: [{_target_: Linear, args: [8, 16]}, ReLU, {_target_: Dropout, p: 0.2}, {_target_: Linear, args: [16, 2]}]}
run:
- _call_: train
  criterion: CrossEntropyLoss
  optimizer: {_target_: Adam, params: {_var_: model.parameters}, lr: 0.01}
  loaders:
    train: &loader {_target_: DataLoader, dataset: {_target_: CSVDataset, path: samples.csv, class_targets: y}, batch_size: 8, shuffle: y}
    valid: *loader
  num_epochs: 15
  valid_loader: valid
  valid_metric: loss
  minimize_valid_metric: y
'''


class Failure(Exception):
    pass


def write_data():
    draw = random.Random(0)
    with open('samples.csv', 'w') as file:
        file.write(','.join(f'x{i}' for i in range(8)) + ',y\n')
        for _ in range(320):
            file.write(','.join(f'{draw.gauss(0, 1):.4f}' for _ in range(8)) + f',{draw.randrange(2)}\n')
    with open('config.yml', 'w') as file:
        file.write(CONFIG)


def children(pid, depth=9):
    """The processes that `pid` has started, and theirs, `depth` generations of them."""
    found = []
    try:
        for task in os.listdir(f'/proc/{pid}/task'):
            for child in open(f'/proc/{pid}/task/{task}/children').read().split():
                found += [int(child)] + (children(int(child), depth - 1) if depth > 1 else [])
    except OSError:
        pass  # it has ended meanwhile
    return found


def members(session):
    """The living processes of a session: a command that was started here and whatever it has forked, also once it has ended itself."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            state, _, _, its = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[:4]
        except OSError:
            continue  # it has ended meanwhile
        if int(its) == session and state not in 'ZX':
            found.append(int(pid))
    return found


def is_over(processes):
    return all(p.poll() is not None and not members(p.pid) for p in processes)


def end(processes):
    """Kills by session: forked ranks have process groups of their own, and may outlive what has forked them."""
    for p in processes:
        while left := members(p.pid):
            for pid in left:
                disturb(pid, signal.SIGKILL, None)
            time.sleep(0.01)
        p.wait()


def wait_until(processes, end):
    while time.time() < end and not is_over(processes):
        time.sleep(0.01)
    return is_over(processes)


def disturb(pid, fault, draw):
    try:
        os.kill(pid, fault)
        if fault == signal.SIGSTOP:
            time.sleep(draw.uniform(0.05, 0.5))
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass  # it has ended meanwhile


class Chaos:
    def __init__(self, command, port, limit, kinds):
        self.command, self.port, self.limit, self.kinds = command, port, limit, kinds
        self.expected, self.seconds = {}, {}  # by kind and ranks
        self.started = []  # whatever happens, nothing of these is left
        self.faults = {'SIGKILL': 0, 'SIGSTOP': 0, 'SIGTERM': 0}

    def start(self, kind, ranks, logdir, again):
        base = [self.command, 'run', '-C', 'config.yml', '--logdir', logdir, '--save-every', '15']
        base += ['--autoresume', 'last'] if again else []
        restarts = ['--max-restarts', '20']
        if kind == 'local':
            lines = [base + ['--nproc', str(ranks)] + restarts]
        elif kind == 'mpi':
            lines = [['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-np', str(ranks)] + base + restarts]
        else:
            self.port += 1
            comm = ['--comm', 'gloo'] if 'gloo' in kind else []
            lines = [base + ['--world-size', str(ranks), '--rank', str(r), '--host', '127.0.0.1', '--port', str(self.port)] + comm +
                     (restarts if 'hand' in kind else []) for r in range(ranks)]
        environment = dict(os.environ, LOCKSTEP_JOIN_TIMEOUT=str(JOIN_S), LOCKSTEP_COMM_TIMEOUT='300')
        processes = []
        for r, line in enumerate(lines):
            with open(f'{logdir}-{r}.out', 'w') as said:
                processes.append(subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                                                  env=environment, start_new_session=True))
                self.started.append(processes[-1])
        return processes

    def end_all(self):
        end(self.started)
        self.started = []

    def hash_of(self, logdir):
        done = subprocess.run([self.command, 'hash', f'{logdir}/checkpoints/model.last.safetensors'], capture_output=True, text=True)
        if done.returncode:
            raise Failure(f'no weights: {done.stderr.strip()}')
        return done.stdout.split()[0]

    def expect(self, kind, ranks):
        if (kind, ranks) in self.expected:
            return
        logdir, begin = f'undisturbed-{kind}-{ranks}', time.time()
        try:
            processes = self.start(kind, ranks, logdir, False)
            if not wait_until(processes, begin + self.limit) or any(p.returncode for p in processes):
                raise Failure(f'the undisturbed job failed: {open(logdir + "-0.out").read()[-300:]}')
        finally:
            self.end_all()
        self.seconds[kind, ranks] = time.time() - begin
        self.expected[kind, ranks] = self.hash_of(logdir)

    def strike(self, kind, processes, draw, seconds):
        """One fault, at a moment of the job's usual time. Returns its name and the rank."""
        wait_until(processes, time.time() + draw.uniform(0, seconds))
        name = draw.choice(['SIGKILL', 'SIGKILL', 'SIGSTOP', 'SIGTERM'])
        if kind != 'local' and kind != 'gloo':  # each command waits for its attempt, which is the rank
            waiting = [p.pid for p in processes] if len(processes) > 1 else children(processes[0].pid, 1)
            rank = draw.randrange(len(waiting)) if waiting else 0
            attempts = children(waiting[rank], 1) if waiting else []
            pid = attempts[0] if attempts else None
            if name == 'SIGTERM':
                name = 'SIGKILL'
        elif len(processes) > 1:
            rank = draw.randrange(len(processes))
            pid = processes[rank].pid
        else:  # the command waits; its first child is rank 0, and theirs are the others
            ranks = children(processes[0].pid)
            rank = draw.randrange(len(ranks)) if ranks else 0
            pid = ranks[rank] if ranks else None
            if name == 'SIGTERM':
                name = 'SIGKILL'  # a rank that is asked to stop ends the job, as it should
        if pid is not None and not is_over(processes):
            self.faults[name] += 1
            disturb(pid, getattr(signal, name), draw)
        return name, rank

    def run(self, seed):
        draw = random.Random(seed)
        kind, ranks = draw.choice(self.kinds), draw.choice([2, 3])
        self.expect(kind, ranks)
        logdir, processes, struck, since = 'disturbed', [], [], time.time()
        shutil.rmtree(logdir, ignore_errors=True)
        try:
            faults = draw.randint(1, 3)
            for attempt in range(faults + 1):
                if not processes:
                    processes = self.start(kind, ranks, logdir, attempt > 0)
                if attempt < faults:
                    struck.append(self.strike(kind, processes, draw, self.seconds[kind, ranks]))
                    if kind != 'gloo' or struck[-1][0] == 'SIGSTOP':
                        continue
                begin = time.time()
                if not wait_until(processes, begin + self.limit):
                    left = {r: members(p.pid) for r, p in enumerate(processes) if not is_over([p])}
                    raise Failure(f'still there after {self.limit} s: the processes {left} (by rank, or those of the command)')
                if attempt < faults:
                    processes = []
            if any(p.returncode for p in processes):
                raise Failure(f'ended with {[p.returncode for p in processes]}')
            if self.hash_of(logdir) != self.expected[kind, ranks]:
                raise Failure('other weights than those of the undisturbed job')
            return f'{kind}, {ranks} ranks, {self.seconds[kind, ranks]:.1f} s undisturbed, {time.time() - since:.1f} s with {struck}'
        except Failure as failure:
            said = '\n'.join(f'    rank {r}: ' + open(f'{logdir}-{r}.out').read()[-400:].strip() for r in range(max(1, len(processes))))
            raise Failure(f'{kind}, {ranks} ranks, {struck}: {failure}\n{said}')
        finally:
            self.end_all()


def main():
    parser = argparse.ArgumentParser(description='Disturbs training jobs and compares their weights with undisturbed ones.')
    parser.add_argument('--command', default='build/lockstep', help='the lockstep to try (%(default)s)')
    parser.add_argument('--runs', type=int, default=30, help='number of jobs (%(default)s)')
    parser.add_argument('--seed', type=int, default=1, help='of the schedules (%(default)s)')
    parser.add_argument('--limit', type=int, default=90, help='seconds that a job may need to end after a fault (%(default)s)')
    parser.add_argument('--port', type=int, default=21000, help='first port for ranks over Gloo (%(default)s)')
    parser.add_argument('--kinds', default='local,gloo,gloo,hand,hand-gloo,mpi', help='which jobs to draw from (%(default)s)')
    parser.add_argument('--verbose', action='store_true', help='one line per job')
    options = parser.parse_args()
    kinds = [kind for kind in options.kinds.split(',') if kind != 'mpi' or shutil.which('mpirun')]
    chaos = Chaos(os.path.abspath(options.command), options.port, options.limit, kinds)
    folder, begin, bad = tempfile.mkdtemp(prefix='lockstep-chaos-'), time.time(), 0
    os.environ.setdefault('XDG_CONFIG_HOME', folder)
    os.chdir(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of everything that cleans up
    try:
        write_data()
        for run in range(options.runs):
            try:
                said = chaos.run(options.seed * 1000003 + run)
                if options.verbose:
                    print(f'run {run}: {said}', flush=True)
            except Failure as failure:
                bad += 1
                print(f'run {run} of seed {options.seed}: {failure}', flush=True)
    finally:
        os.chdir('/')
        shutil.rmtree(folder)
    said = ', '.join(f'{count} {name}' for name, count in chaos.faults.items())
    print(f'chaos: {options.runs} jobs, {said}: {bad} failed, {time.time() - begin:.0f} s')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main())
