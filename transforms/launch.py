"""Start the user's program as a child of its own supervisor, kill all its descendants, report its end to the worker.

Run as `python -I -S launch.py OPTIONS PROGRAM [ARG ...]`; no module imports it. It is a process of its own:

- It is a subreaper (prctl 36): every process that the program leaves behind, `setsid` or not, becomes its child. So the
  kernel's ancestry defines what belongs to the run, and the worker's other children are never affected.
- It gets a signal when the worker dies (PR_SET_PDEATHSIG) and then kills all of them. A bare program would continue.
- A preexec_fn would run Python in a forked copy of a worker with many threads of librdkafka.

It has few imports, since it starts once per range: about 8 ms.

Ten times a second, it counts the processes and their memory, and kills them all beyond a limit. RLIMIT_NPROC counts all
processes of a user, and does not apply to root. RLIMIT_AS counts addresses, of which Go, Java and Node reserve more than
they use.

Protocol, one line each on the status pipe: `pid PID` (the program, and its group), `exec ERRNO` (it could not be
started), `limit NAME ERRNO`, `over NAME FOUND` (it is being killed for that limit), `exit WAITSTATUS` (its own end).
End-of-file follows once no descendant is left. Orders from the worker are signals: SIGTERM ends every descendant, SIGUSR1
kills them. SIGUSR2 is the kernel's signal that a thread of the worker, or the worker itself, died.
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
    """Call prctl on Linux; without it, killing reaches the process group only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def say(status: int, line: str) -> None:
    try:
        os.write(status, line.encode() + b"\n")
    except OSError:  # the worker has died
        pass


def become(argv: list[str], status: int, options: dict[str, str]) -> None:
    """Harden the forked child, then exec the program. Does not return."""
    supervisor = os.getppid()
    os.setsid()
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != supervisor:  # the supervisor died before the line above took effect
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
            if name != "rlimit_cpu":  # its hard limit kills; the soft one alone sends SIGXCPU, which names the reason
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
    """Return the group of every process below this one, from one pass over /proc; None without /proc."""
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
            except OSError:  # the process ended in the meantime
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
    """Send a signal to all descendants; without /proc, to the program's own group."""
    found = descendants()
    # Groups of descendants contain no other process: their sessions began below this one. A signal to a group reaches all of it
    # at once, including processes being forked (Linux 4.19); killing one by one is slower than some programs fork.
    targets = {leader: leader} if found is None else found
    for target in [-group for group in set(targets.values()) if group > 1] if number == SIGKILL else targets:
        try:
            os.kill(target, number)
        except OSError:
            pass


def hasten() -> None:
    """Get a higher priority than all descendants, if permitted (root): each session has its own share of a processor."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (OSError, AttributeError):
        pass


def below(pid: int) -> list[int]:
    """Return children of all threads of a process; none if it has ended, or the kernel does not list them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes, shared pages included."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def too_much(limits: dict[str, int]) -> str:
    """Return the limit that the descendants exceed, and the number found; empty if none. Stops counting beyond a limit."""
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
    """Wait until no descendant is left. While it kills, it repeats the scan for processes forked in between."""
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
    for descriptor in (0, 1, 2):  # only the program may keep the pipes open, or the worker would never see their end
        os.dup2(nowhere, descriptor)
    limits = {name[5:]: int(value) for name, value in options.items() if name.startswith("most_")}
    supervise(leader, worker, status, limits)
    if "scratch" in options and os.getppid() != worker:  # the worker cannot remove the run's own directory any more
        import shutil

        shutil.rmtree(os.getcwd(), ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
