"""Build Warren's wheel with the kernel and Qpid Proton in it: installing it needs no compiler.

PyPI has Proton's sources only. What Warren uses of them is its engine, without sockets, TLS or
Cyrus SASL: that much needs no library but libc, and becomes the package `warren_proton`. Proton's
files keep their licence and say at the top what was changed.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from tools import console
from tools.environment import LOCK, LOGS, ROOT, ensure_kernel, environment, python

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


class WheelFailed(Exception):
    """A step failed; the end of its output is printed."""


def _run(title: str, command: list[str], cwd: Path, **more: str) -> None:
    log = LOGS / "wheel.log"
    if not console.quiet(title, command, log, env=environment(**more), cwd=cwd):
        raise WheelFailed(title)


def _version() -> str:
    """Return the version of Proton that requirements.txt names."""
    found = re.search(rf"^{DISTRIBUTION}==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, DISTRIBUTION
    return found[1]


def _sources(version: str, work: Path) -> Path:
    """Fetch and unpack Proton's source distribution."""
    wanted = f"{DISTRIBUTION}=={version}"
    pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(work)]
    _run(f"fetching {wanted}", [*pip, *options, wanted], work)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        # Named so, and not as an argument, which Python before 3.11.4 (Debian 12) does not know.
        opened.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        opened.extractall(work)
    return work / archive.name.removesuffix(".tar.gz")


def _replace(text: str, old: str, new: str) -> str:
    if old not in text:
        raise WheelFailed(f"Proton's sources have changed: {old!r} is not there")
    return text.replace(old, new)


def _compile(sources: Path, flags: str) -> None:
    """Compile the engine as `warren_proton.cproton_ffi`, without OpenSSL and Cyrus SASL.

    Symbols for a debugger are not made: the wheel is stripped of them.
    """
    script = sources / "ext_build.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(_replace(text, '"cproton_ffi"', f'"{PACKAGE}.cproton_ffi"'), encoding="utf-8")
    # Where pkg-config finds no library, Proton takes its own stubs for TLS and SASL.
    more = " ".join(filter(None, (os.environ.get("CFLAGS"), "-g0", flags)))
    command = [str(python()), script.name]
    _run("compiling Proton", command, sources, PKG_CONFIG="false", CFLAGS=more)


def _package(sources: Path, version: str) -> Path:
    """Write the package beside the sources; return its folder."""
    folder = sources / PACKAGE
    for name in MODULES:
        text = (sources / "proton" / f"{name}.py").read_text(encoding="utf-8")
        text = re.sub(r"^from cproton import", "from .cproton import", text, flags=re.MULTILINE)
        text = re.sub(r"^(\s*)from proton\.", r"\1from .", text, flags=re.MULTILINE)
        (folder / f"{name}.py").write_text(CHANGED + text, encoding="utf-8")
    text = (sources / "cproton.py").read_text(encoding="utf-8")
    text = _replace(text, "from cproton_ffi import", "from .cproton_ffi import")
    # cffi makes this module when the extension is imported; a relative import does not find it.
    text = _replace(text, "from cproton_ffi.lib import", f"from {PACKAGE}.cproton_ffi.lib import")
    (folder / "cproton.py").write_text(CHANGED + text, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE")
    notice = NOTICE.format(version=version, distribution=DISTRIBUTION)
    (folder / "NOTICE").write_text(notice, encoding="utf-8")
    for left in (*folder.glob("*.c"), *folder.glob("*.o")):
        left.unlink()
    return folder


def make(dist: Path = ROOT / "dist", flags: str = "") -> Path:
    """Build the wheel; return its path.

    dist   folder of the wheel
    flags  more flags for the compiler of Proton

    Raises WheelFailed when Warren or Proton cannot be compiled, when Proton cannot be fetched, and
    when the result needs a library that a Linux need not have.
    """
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    version = _version()
    with tempfile.TemporaryDirectory(prefix="warren-wheel-") as place:
        work = Path(place)
        pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "wheel"]
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(work / "first")]
        compiled = {"WARREN_WHEEL_KERNEL": "in-place"} if ensure_kernel() else {}
        _run("building the wheel", [*pip, str(ROOT), *options], ROOT, **compiled)
        (first,) = (work / "first").glob("*.whl")
        unpacked = _unpack(first, work)
        sources = _sources(version, work)
        _compile(sources, flags)
        shutil.copytree(_package(sources, version), unpacked / PACKAGE)
        _require(unpacked)
        made = _pack(unpacked, work)
        dist.mkdir(exist_ok=True)
        target = dist / made.name
        shutil.copy(made, target)
        console.say(f"   {os.path.relpath(target, ROOT)}  {target.stat().st_size // 1024} KiB")
        shutil.rmtree(ROOT / "build", ignore_errors=True)
        return target


def _unpack(wheel: Path, work: Path) -> Path:
    command = [str(python()), "-m", "wheel", "unpack", str(wheel), "--dest", str(work)]
    _run("unpacking it", command, work)
    (unpacked,) = work.glob("warrenmq-*")
    return unpacked


def _require(unpacked: Path) -> None:
    """Let the wheel require what the copy of Proton needs instead of Proton."""
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    text = metadata.read_text(encoding="utf-8")
    old = rf"^Requires-Dist: {DISTRIBUTION}\b.*$"
    text, count = re.subn(old, f"Requires-Dist: {NEEDED}", text, flags=re.MULTILINE)
    if count != 1:
        raise WheelFailed(f"{metadata.name} names {DISTRIBUTION} {count} times, expected once")
    metadata.write_text(text, encoding="utf-8")


def _pack(unpacked: Path, work: Path) -> Path:
    """Pack the wheel again, and name the oldest platform that it runs on."""
    packed = work / "packed"
    packed.mkdir()
    pack = [str(python()), "-m", "wheel", "pack", str(unpacked), "--dest-dir", str(packed)]
    _run("packing it", pack, work)
    (wheel,) = packed.glob("*.whl")
    out = work / "out"
    repair = [
        str(python()),
        "-m",
        "auditwheel",
        "repair",
        "--strip",
        "--wheel-dir",
        str(out),
        str(wheel),
    ]
    _run("naming its platform", [*repair, str(wheel)], work)
    (made,) = out.glob("*.whl")
    return made
