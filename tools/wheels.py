"""Build Warren's sdist and wheels: installing one of those with the kernel needs no compiler.

1. The sdist is made of the source folders alone, and everything else is made of the sdist.
2. `pure` is the wheel for every Python and machine. Its kernel is interpreted, and it requires
   `python-qpid-proton`, of which PyPI has the sources only.
3. `cp3N-MACHINE` has the kernel compiled. `abi3-MACHINE` has not, and serves Pythons that are newer
   than this list. Both have Proton's engine, without sockets, TLS or Cyrus SASL: that much needs
   no library but libc, and is the package `warren_proton`. Proton's files keep their licence and
   say at the top what was changed.

C is compiled with `zig cc`, for any machine on any machine, against the symbols of an old glibc. Of
a Python only the headers are needed. The same sources give the same bytes: times are those of the
last commit (or SOURCE_DATE_EPOCH), names are sorted, and no path of this machine is in a binary.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tools import console, interpreter, pythons, release_tools
from tools.environment import LOCK, LOGS, ROOT, SOURCES, environment, python

MINORS = tuple(sorted(interpreter.MINORS))
"""The minor versions of Python 3 for which the kernel is compiled."""
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"
PLATFORMS = "manylinux_2_17_{0}.manylinux2014_{0}"
"""What a wheel says that needs that glibc, in the new spelling and in the one before."""
PACKAGE = "warren_proton"
DISTRIBUTION = "python-qpid-proton"
MODULES = (
    "__init__",
    "_common",
    "_condition",
    "_data",
    "_delivery",
    "_endpoints",
    "_events",
    "_exceptions",
    "_handler",
    "_message",
    "_transport",
    "_url",
    "_wrapper",
)
"""Proton's modules without its containers, sockets and tracing."""
NEEDED = "cffi>=1.15"
"""What the copy needs when it runs; cffi has wheels."""
CHANGED = f"# Changed for Warren: a module of {PACKAGE}, whose imports are relative.\n"
NOTICE = """\
Apache Qpid Proton {version}
Copyright 2012-2025 The Apache Software Foundation

This product includes software developed at
The Apache Software Foundation (http://www.apache.org/).

This package is a part of the Python distribution {distribution} {version}. Its imports were made
relative, and it was compiled without OpenSSL and Cyrus SASL. The licence is in the file LICENSE.
"""
ENGINE = """
import cffi.pkgconfig
def absent(names):
    raise cffi.pkgconfig.PkgConfigError(f"{names} are not wanted")
cffi.pkgconfig.flags_from_pkgconfig = absent
import ext_build
ext_build.ffibuilder.emit_c_code("engine.c")
print(*ext_build.sources)
"""
"""Writes the C code of Proton's bindings, and prints the names of its own.

Where pkg-config finds no library, Proton takes its own stubs for TLS and SASL.
"""
KERNEL = """
import sys
from pathlib import Path
sys.path.insert(0, "broker/warren_wire/kernel")
import build_kernel
for made in build_kernel.extensions(sys.argv[1], Path("broker"), False, build_kernel.JOBS):
    print("generated", *made.sources)
"""
TOP_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md")
OLDEST = 315_532_800
"""1980: no archive has an earlier time."""


class WheelFailed(Exception):
    """A step failed; the end of its output is printed."""


@dataclass(frozen=True, slots=True)
class Target:
    """A file to make: `sdist`, `pure`, or a wheel for one Python (or `abi3`) on one machine."""

    python: str
    machine: str = ""

    def __str__(self) -> str:
        return f"{self.python}-{self.machine}" if self.machine else self.python

    @property
    def minor(self) -> int:
        """The minor version of Python that its kernel is compiled for; 0: none."""
        return int(self.python[3:]) if self.python.startswith("cp3") else 0

    @property
    def tags(self) -> tuple[str, str, str]:
        """Python, ABI and platform, as the name of a wheel has them."""
        if not self.machine:
            return "py3", "none", "any"
        named = self.python if self.minor else f"cp3{MINORS[0]}"
        return named, self.python, PLATFORMS.format(self.machine)


TARGETS = (
    Target("sdist"),
    Target("pure"),
    *(
        Target(one, machine)
        for machine in MACHINES
        for one in ("abi3", *map("cp3{}".format, MINORS))
    ),
)


def here() -> str:
    """Return the name of the wheel for this Python on this machine."""
    return f"cp3{sys.version_info[1]}-{platform.machine()}"


def of_this_python(found: Iterable[Path]) -> Path:
    """Return the newest wheel for this Python on this machine; the one with `abi3` is another."""
    named, _, machine = here().partition("-")
    own = [one for one in found if f"-{named}-{named}-" in one.name and machine in one.name]
    return max(own, key=lambda path: path.stat().st_mtime)


def chosen(names: Sequence[str]) -> list[Target]:
    """Return the targets that have one of these names, or a part of it; all without a name.

    raises  WheelFailed  a name is of none
    """
    for name in names:
        if not any(name == str(one) or name in str(one).split("-") for one in TARGETS):
            raise WheelFailed(
                f"{name!r} is none of {', '.join(map(str, TARGETS))}, or a part of one"
            )
    return [
        one
        for one in TARGETS
        if not names or any(name == str(one) or name in str(one).split("-") for name in names)
    ]


def make(
    dist: Path = ROOT / "dist", names: Sequence[str] = (), flags: str = "", twice: bool = False
) -> list[Path]:
    """Build what was chosen; return the paths.

    dist   folder of the files; what it has of the same names is replaced
    names  of targets, or of parts; none: all
    flags  more flags for the compiler of Proton
    twice  everything is built again in another folder, and must be the same bytes

    Raises WheelFailed when Warren or Proton cannot be compiled, when Proton cannot be fetched, when
    the result needs a library that a Linux need not have, and, when all that can be is built, where
    a Python is missing.
    """
    wanted = chosen(names)
    headers = {minor: pythons.find(minor) for minor in sorted({one.minor for one in wanted} - {0})}
    missing = [minor for minor, found in headers.items() if found is None]
    wanted = [one for one in wanted if one.minor not in missing]
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="warren-wheel-") as place:
        for run in range(1 + twice):
            build = _Build(Path(place, "again" * run, "build"), headers, flags)
            built = build.run(wanted)
            if run:
                _compare(made, built)
                continue
            dist.mkdir(exist_ok=True)
            made = [Path(shutil.copy(path, dist)) for path in built]
    for path in made:
        console.say(f"   {os.path.relpath(path, ROOT)}  {path.stat().st_size // 1024} KiB")
    if missing:
        raise WheelFailed(
            f"no wheel for {', '.join(f'cp3{minor}' for minor in missing)}: there is no "
            f"{', '.join(f'python3.{minor}' for minor in missing)} on PATH, of pyenv or of uv "
            "(`uv python install 3.N` brings one)"
        )
    return made


def _compare(first: Iterable[Path], second: Iterable[Path]) -> None:
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise WheelFailed(f"two builds of {one.name} differ")
    console.say(" ✓ a second build gave the same bytes")


def _run(title: str, command: list[str], cwd: Path, **more: str) -> str:
    """Run a step; return what it printed."""
    log = LOGS / "wheel.log"
    if not console.quiet(title, command, log, env=environment(**more), cwd=cwd):
        raise WheelFailed(title)
    return log.read_text(encoding="utf-8")


def _epoch() -> int:
    """Return the time that all files of the archives have: of the last commit."""
    if named := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(named)
    command = ["git", "log", "-1", "--format=%ct"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(said.stdout) if said.returncode == 0 and said.stdout.strip() else OLDEST


@dataclass
class _Build:
    """One build of some targets in a folder of its own, which has the compiler's cache, too."""

    work: Path
    headers: Mapping[int, Path | None]
    flags: str
    epoch: int = field(default_factory=_epoch)

    def run(self, wanted: Sequence[Target]) -> list[Path]:
        """Build them; return the paths, in the same order."""
        self.work.mkdir(parents=True)
        return [self._make(one) for one in wanted]

    def _make(self, target: Target) -> Path:
        if target.python == "sdist":
            return self.sdist
        files = dict(self.pure)
        if target.machine:
            files |= self._engine(target.machine)
            if target.minor:
                files |= self._kernel(target)
            files = _adapted(files, target)
        version = self.sdist.name.removesuffix(".tar.gz")
        path = self.work / f"{version}-{'-'.join(target.tags)}.whl"
        write_wheel(path, files, self.epoch)
        if target.machine:
            show = [str(python()), "-m", "auditwheel", "show", str(path)]
            said = _run(f"checking what {target} needs", show, self.work)
            if f'"{target.tags[2].split(".")[0]}"' not in " ".join(said.split()):
                raise WheelFailed(f"{path.name} needs more than its name says: {said}")
        return path

    @cached_property
    def sdist(self) -> Path:
        """The sources as an archive, made of nothing but Warren's own folders."""
        place = self.work / "sources"
        no = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "*.c")
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, place / folder, ignore=no)
        for name in TOP_FILES:
            shutil.copy(ROOT / name, place)
        return repacked(self._backend("sdist", place), self.epoch)

    @cached_property
    def unpacked(self) -> Path:
        """The unpacked sdist."""
        return _unpack(self.sdist, self.work)

    @cached_property
    def pure(self) -> dict[str, bytes]:
        """The files of the wheel without extensions, by name, but for RECORD."""
        wheel = self._backend("wheel", self.unpacked)
        with zipfile.ZipFile(wheel) as opened:
            names = [one for one in opened.namelist() if not one.endswith("/RECORD")]
            return {name: opened.read(name) for name in names}

    def _backend(self, kind: str, cwd: Path) -> Path:
        """Make the sdist or the pure wheel of a folder with setuptools."""
        out = self.work / kind
        call = f"from setuptools import build_meta as b; b.build_{kind}({str(out)!r})"
        out.mkdir()
        command = [str(python()), "-c", call]
        more = {"SOURCE_DATE_EPOCH": str(self.epoch), "WARREN_WHEEL_KERNEL": "none"}
        _run(f"making the {kind}", command, cwd, **more)
        (made,) = out.iterdir()
        return made

    @cached_property
    def generated(self) -> list[Path]:
        """The kernel's C files, which serve every Python and machine."""
        command = [str(python()), "-c", KERNEL, str(self.work / "c")]
        said = _run("generating the kernel's C", command, self.unpacked)
        return [Path(one.split()[1]) for one in said.splitlines() if one.startswith("generated ")]

    def _kernel(self, target: Target) -> dict[str, bytes]:
        """Compile the kernel's modules for one Python and machine."""
        found = self.headers[target.minor]
        headers = self.work / "headers" / target.python
        assert found is not None, target
        if not headers.exists():
            pythons.copy_headers(found, headers)
        suffix = f".cpython-3{target.minor}-{target.machine}-linux-gnu.so"
        out = self.work / str(target)
        out.mkdir()
        jobs = [
            (["-O3", f"-I{headers}", str(source)], out / f"{source.stem}{suffix}")
            for source in self.generated
        ]
        self._compile(f"compiling the kernel for {target}", target.machine, jobs)
        return {f"warren_wire/kernel/compiled/{path.name}": path.read_bytes() for _, path in jobs}

    @cached_property
    def proton(self) -> tuple[Path, list[str]]:
        """Proton's sources with the C code of its bindings, and the names of all C files."""
        version = proton_version()
        wanted = f"{DISTRIBUTION}=={version}"
        pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "download"]
        options = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        place = self.work / "proton"
        _run(f"fetching {wanted}", [*pip, *options, "--dest", str(place), wanted], self.work)
        (archive,) = place.glob("*.tar.gz")
        sources = _unpack(archive, place)
        script = sources / "ext_build.py"
        text = _replace(
            script.read_text(encoding="utf-8"), '"cproton_ffi"', f'"{PACKAGE}.cproton_ffi"'
        )
        script.write_text(text, encoding="utf-8")
        title = "generating Proton's bindings"
        said = _run(title, [str(python()), "-c", ENGINE], sources)
        return sources, ["engine.c", *said.splitlines()[-1].split()]

    def _engine(self, machine: str) -> dict[str, bytes]:
        """Compile Proton's engine for one machine: it keeps to the ABI that all Pythons have."""
        sources, names = self.proton
        target = self.work / f"engine-{machine}" / "cproton_ffi.abi3.so"
        if not target.exists():
            target.parent.mkdir()
            headers = self.work / "headers" / "engine"
            if not headers.exists():
                pythons.copy_headers(python(), headers)
            options = ["-O2", "-std=gnu99", "-fvisibility=hidden", "-DPROTON_DECLARE_STATIC"]
            options += [*self.flags.split(), "-Iinclude", "-Isrc", f"-I{headers}", *names]
            title = f"compiling Proton for {machine}"
            self._compile(title, machine, [(options, target)], sources)
        found = {name: sources / "proton" / f"{name}.py" for name in MODULES}
        texts = {f"{name}.py": _module(path) for name, path in found.items()}
        texts["cproton.py"] = _bindings(sources / "cproton.py")
        texts["LICENSE"] = (ROOT / "LICENSE").read_text(encoding="utf-8")
        texts["NOTICE"] = NOTICE.format(version=proton_version(), distribution=DISTRIBUTION)
        files = {f"{PACKAGE}/{name}": text.encode() for name, text in texts.items()}
        return {**files, f"{PACKAGE}/{target.name}": target.read_bytes()}

    def _compile(
        self, title: str, machine: str, jobs: list[tuple[list[str], Path]], cwd: Path | None = None
    ) -> None:
        """Compile and link extensions, as many at a time as there are processors."""
        cache = str(self.work / "zig")
        env = environment(ZIG_GLOBAL_CACHE_DIR=cache, ZIG_LOCAL_CACHE_DIR=cache)
        zig = [str(release_tools.python()), "-m", "ziglang", "cc"]
        zig += ["-target", f"{machine}-linux-gnu.{GLIBC}", "-shared", "-fPIC", "-DNDEBUG", "-g0"]
        # As CPython is compiled; zig's own default stops the program where C is undefined.
        zig += ["-fwrapv", "-fno-sanitize=undefined", "-s", "-w"]
        zig += [f"-ffile-prefix-map={self.work}=."]

        def one(job: tuple[list[str], Path]) -> str:
            options, target = job
            done = subprocess.run(
                [*zig, *options, "-o", str(target)],
                cwd=cwd or self.work,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            return "" if done.returncode == 0 else f"{target.name}: {done.stderr}"

        began = time.monotonic()
        with console.Spinner(title), ThreadPoolExecutor(os.cpu_count()) as pool:
            failed = "".join(pool.map(one, jobs))
        if failed:
            raise WheelFailed(f"{title}\n{failed}")
        console.say(f" ✓ {title}  {console.took(began)}")


def _unpack(archive: Path, place: Path) -> Path:
    with tarfile.open(archive) as opened:
        # Named so, and not as an argument, which Python before 3.11.4 (Debian 12) does not know.
        opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        opened.extractall(place)
    return place / archive.name.removesuffix(".tar.gz")


def repacked(archive: Path, epoch: int) -> Path:
    """Pack a .tar.gz again, the same for the same files wherever and whenever it was made."""
    packed = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for one in sorted(old.getmembers(), key=lambda member: member.name):
            one.mtime, one.uid, one.gid, one.uname, one.gname = epoch, 0, 0, "", ""
            one.mode = 0o755 if one.isdir() else 0o644
            one.pax_headers = {}
            new.addfile(one, old.extractfile(one) if one.isfile() else None)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))
    return archive


def write_wheel(path: Path, files: Mapping[str, bytes], epoch: int) -> None:
    """Write a wheel and its RECORD, the same for the same files; metadata last, as is asked."""
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    listed = io.StringIO()
    rows = csv.writer(listed, lineterminator="\n")
    names = sorted(files, key=lambda name: (name.startswith(f"{info}/"), name))
    for name in names:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=")
        rows.writerow((name, f"sha256={digest.decode()}", len(files[name])))
    rows.writerow((f"{info}/RECORD", "", ""))
    when = time.gmtime(max(epoch, OLDEST))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in [*names, f"{info}/RECORD"]:
            member = zipfile.ZipInfo(name, when)
            member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, 3
            member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            opened.writestr(member, files.get(name, listed.getvalue().encode()))


def _adapted(files: Mapping[str, bytes], target: Target) -> dict[str, bytes]:
    """Let a wheel say what it is for, and require what the copy of Proton needs instead of it."""
    changed = dict(files)
    (metadata,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    old = rf"^Requires-Dist: {DISTRIBUTION}\b.*$"
    text, count = re.subn(old, f"Requires-Dist: {NEEDED}", files[metadata].decode(), flags=re.M)
    if count != 1:
        raise WheelFailed(f"METADATA names {DISTRIBUTION} {count} times, expected once")
    changed[metadata] = text.encode()
    wheel = metadata.replace("METADATA", "WHEEL")
    named, abi, platforms = target.tags
    tags = "".join(f"Tag: {named}-{abi}-{each}\n" for each in platforms.split("."))
    text = _replace(files[wheel].decode(), "Tag: py3-none-any\n", tags)
    changed[wheel] = _replace(text, "Purelib: true", "Purelib: false").encode()
    return changed


def proton_version() -> str:
    """Return the version of Proton that requirements.txt names."""
    found = re.search(rf"^{DISTRIBUTION}==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, DISTRIBUTION
    return found[1]


def _replace(text: str, old: str, new: str) -> str:
    if old not in text:
        raise WheelFailed(f"sources have changed: {old!r} is not there")
    return text.replace(old, new)


def _module(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^from cproton import", "from .cproton import", text, flags=re.MULTILINE)
    return CHANGED + re.sub(r"^(\s*)from proton\.", r"\1from .", text, flags=re.MULTILINE)


def _bindings(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    text = _replace(text, "from cproton_ffi import", "from .cproton_ffi import")
    # cffi makes this module when the extension is imported; a relative import does not find it.
    return CHANGED + _replace(
        text, "from cproton_ffi.lib import", f"from {PACKAGE}.cproton_ffi.lib import"
    )


def run(arguments: Sequence[str]) -> int:
    """Build what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="build.py wheels", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = ", ".join(map(str, TARGETS))
    parser.add_argument("--only", action="append", default=[], help=f"{names}; or a part of those")
    parser.add_argument("--twice", action="store_true", help="build again and compare the bytes")
    parser.add_argument("--no-try", action="store_true", help="do not install and run them")
    options = parser.parse_args(arguments)
    try:
        made = make(names=options.only, twice=options.twice)
        if not options.no_try:
            from tools import wheel_trial

            wheel_trial.try_out(made)
    except (WheelFailed, release_tools.ToolsMissing) as error:
        console.say(f" ✗ {error}")
        return 1
    return 0
