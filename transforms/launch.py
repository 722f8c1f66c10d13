"""Between the worker and the user's program: starts it, owns everything that descends from it, reports its end.

Run as `python -I -S launch.py OPTIONS PROGRAM [ARG ...]`; imported by nobody. It stands in a process of its own because

- it is a subreaper (prctl 36), so whatever the program leaves behind, `setsid` or not, becomes a child of this process
  and of no other. Ancestry kept by the kernel says what belongs to the run; the worker's other children are never
  looked at.
- it hears about the worker's death (PR_SET_PDEATHSIG) and then kills all of them, where a bare program would live on.
- a preexec_fn would run Python in a forked copy of a worker that is full of librdkafka's threads.

It keeps its imports few, since it starts once per range: about 8 ms.

- it looks ten times a second at how many processes there are and what memory they hold, and kills them all when that is
  too much. RLIMIT_NPROC counts a user's processes wherever they come from, and does not bind root; RLIMIT_AS counts
  addresses, of which Go, Java and Node reserve more than they use.

Protocol, one line each on the status pipe: `pid PID` (the program, and its group), `exec ERRNO` (it could not be
started), `limit NAME ERRNO`, `over NAME FOUND` (it is being killed for that), `exit WAITSTATUS` (its own end); end-of-file
once no descendant is left. Orders from the worker come as signals: SIGTERM asks every descendant to end, SIGUSR1 kills
them, SIGUSR2 is the kernel's news that a thread of the worker, or the worker itself, died.
"""

# ruff: noqa: D103, PTH123, SIM105 (contextlib and pathlib would double the time that this takes to start)

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself imports enum, which costs 3 ms
import ctypes
import os
import sys

# prctl(2); the numbers are kernel ABI.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
# With these, root reads other processes: SETPCAP, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF, CHECKPOINT_RESTORE.
# A process that has one more than the program cannot be traced by it. A user other than root has none of them.
SPYING = (8, 16, 17, 19, 21, 38, 39, 40)
ORDERS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
SIGKILL = 9
EXEC_FAILED = 127
LOOK_S = 0.1
# Added to the kernel's own score (0 to 1000): out of memory, it ends the program before the worker, the JVM or a broker.
OOM_SCORE = 500


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the kill path reaches the process group alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def say(status: int, line: str) -> None:
    try:
        os.write(status, line.encode() + b"\n")
    except OSError:  # the worker is gone
        pass


def become(argv: list[str], status: int, options: dict[str, str]) -> None:
    """In the forked child: harden, then exec. Does not return."""
    supervisor = os.getppid()
    os.setsid()
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != supervisor:  # it died before the line above took effect
        os._exit(EXEC_FAILED)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for capability in SPYING:
        prctl(PR_CAPBSET_DROP, capability)
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < OOM_SCORE:
                file.seek(0)
                file.write(str(OOM_SCORE))
    except OSError:
        pass
    for name, value in options.items():
        if name.startswith("rlimit_"):
            import resource

            which = getattr(resource, name.upper())
            hard = resource.getrlimit(which)[1]
            limit = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
            if name != "rlimit_cpu":  # its hard limit kills; the soft one alone sends SIGXCPU, which says why
                hard = limit
            try:
                resource.setrlimit(which, (limit, hard))
            except (OSError, ValueError) as error:
                say(status, f"limit {name} {getattr(error, 'errno', 0) or 0}")
                os._exit(EXEC_FAILED)
    for number in range(1, signal.NSIG):  # ignored signals outlive exec; Python ignores SIGPIPE and SIGXFSZ
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    environment = dict(os.environ)
    if "drop" in options:  # Python adds LC_CTYPE to its own environment under LANG=C (PEP 538)
        environment.pop(options["drop"], None)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        say(status, f"exec {error.errno}")
    os._exit(EXEC_FAILED)


def descendants() -> dict[int, int] | None:
    """Group of every process below this one, from one pass over /proc; None where there is no /proc."""
    children: dict[int, list[tuple[int, int]]] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return None
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(int(words[1]), []).append((int(entry), int(words[2])))
    found: dict[int, int] = {}
    ahead = [os.getpid()]
    while ahead:
        for pid, group in children.get(ahead.pop(), ()):
            found[pid] = group
            ahead.append(pid)
    return found


def send(leader: int, number: int) -> None:
    """To all descendants. Without /proc at least to the program's own group."""
    found = descendants()
    # Groups of descendants hold nothing else: their sessions began below us. A signal to a group reaches all of it at once,
    # also who is being forked (Linux 4.19), where process after process some fork faster than they are killed.
    targets = {leader: leader} if found is None else found
    for target in [-group for group in set(targets.values()) if group > 1] if number == SIGKILL else targets:
        try:
            os.kill(target, number)
        except OSError:
            pass


def hasten() -> None:
    """Ahead of everything that runs below, where the system allows it (root): each session has its own share of a processor."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (OSError, AttributeError):
        pass


def below(pid: int) -> list[int]:
    """Children of all threads of a process; none when it has ended, and where the kernel does not tell."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, shared pages included."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def too_much(limits: dict[str, int]) -> str:
    """Which limit the descendants are beyond, and what was found; empty for none. Stops counting beyond it."""
    processes = memory = 0
    ahead = [os.getpid()]
    while ahead:
        children = below(ahead.pop())
        ahead += children
        processes += len(children)
        if processes > limits["processes"]:
            return f"processes {processes}"
        if "memory" in limits:
            memory += sum(map(resident, children))
            if memory > limits["memory"]:
                return f"memory {memory}"
    return ""


def supervise(leader: int, worker: int, status: int, limits: dict[str, int]) -> None:
    """Waits until no descendant is left. While it kills, it looks again and again, for what was forked in between."""
    killing = False
    while True:
        order = signal.sigtimedwait(ORDERS, LOOK_S)
        if order is None:
            if not killing and (over := too_much(limits)):
                hasten()
                say(status, f"over {over}")
                killing = True
        elif order.si_signo == signal.SIGTERM:
            send(leader, signal.SIGTERM)
        elif order.si_signo == signal.SIGUSR1 or (order.si_signo == signal.SIGUSR2 and os.getppid() != worker):
            hasten()
            killing = True
        if killing:
            send(leader, SIGKILL)
        while True:
            try:
                pid, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            if pid == leader:
                say(status, f"exit {how}")


def main() -> None:
    options = dict(option.split("=", 1) for option in sys.argv[1].split(","))
    status, worker = int(options["status"]), int(options["worker"])
    os.set_inheritable(status, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ORDERS)  # orders are waited for, never handled: no lost wake-up
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would reap by itself and lose the status
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR2)
    if os.getppid() != worker:
        os._exit(0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    leader = os.fork()
    if leader == 0:
        become(sys.argv[2:], status, options)
    say(status, f"pid {leader}")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # only the program may hold the pipes, or nobody would ever see their end
        os.dup2(nowhere, descriptor)
    limits = {name[5:]: int(value) for name, value in options.items() if name.startswith("most_")}
    supervise(leader, worker, status, limits)
    if "scratch" in options and os.getppid() != worker:  # nobody else is left to remove the run's own directory
        import shutil

        shutil.rmtree(os.getcwd(), ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
