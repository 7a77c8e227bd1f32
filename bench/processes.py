"""CPU, memory, disk and network use of a cluster's processes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KIB = 1024


@dataclass(frozen=True, slots=True)
class Spent:
    """The use between two moments: seconds, CPU seconds of each process and of all others."""

    seconds: float
    cpu_s: tuple[float, ...]
    others_s: float

    @property
    def cores(self) -> tuple[float, ...]:
        """Cores used by each process."""
        return tuple(each / self.seconds for each in self.cpu_s)

    @property
    def others(self) -> float:
        """Cores used by neither the processes nor this program."""
        return self.others_s / self.seconds


class Meter:
    """A meter of the CPU time used since its construction."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = tuple(pids)
        self._began = time.monotonic()
        self._cpu = tuple(map(cpu_s, self.pids))
        self._own = time.process_time()
        self._machine = machine_cpu_s()

    def spent(self) -> Spent:
        """Return what was used until now."""
        cpu = tuple(cpu_s(pid) - before for pid, before in zip(self.pids, self._cpu, strict=True))
        own = time.process_time() - self._own
        everybody = machine_cpu_s() - self._machine
        return Spent(time.monotonic() - self._began, cpu, max(0.0, everybody - own - sum(cpu)))


def filed_bytes(pid: int) -> int:
    """Return how many bytes a process has written to files; what it sent to sockets is none."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar:")))


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def machine_cpu_s() -> float:
    """Return the CPU seconds used on the machine: user, nice, system, interrupts."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory, shared pages included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    return 0


def written_bytes(place: Path) -> int:
    """Return the bytes that the disk of that place has written since it was attached.

    The counter is the device's: of a process Linux counts, for each small write, all of the folio
    in the page cache that it changes, up to a hundred times of what goes to the disk. Other
    programs' writes are in it. 0 where the device has no counters.
    """
    os.sync()
    device = place.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(stat.read_text().split()[6]) * 512 if stat.exists() else 0


def loopback_bytes() -> int:
    """Return the bytes that crossed the loopback of this thread's network namespace."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == "lo":
            return int(rest.split()[0])
    return 0


def disk_bytes(directory: Path) -> int:
    """Return the disk usage below a directory; files deleted meanwhile are skipped."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


@contextmanager
def own_network() -> Iterator[bool]:
    """Enter a network namespace of its own for the measured processes; False: not allowed.

    Processes that are started inside inherit it.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    clone_newnet = 0x40000000
    outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(clone_newnet) != 0:
            yield False
            return
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        try:
            yield True
        finally:
            if libc.setns(outside, clone_newnet) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(outside)


def load() -> float:
    """Return the machine's load average over the last minute."""
    return os.getloadavg()[0]
