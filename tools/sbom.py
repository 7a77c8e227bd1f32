"""A bill of materials (CycloneDX, JSON) of what the wheel for this Python installs with `broker`.

It has every package of an environment with that wheel and nothing else, and, as parts of Warren,
what its own files hold of others: Qpid Proton and uPlot.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tools import console, release_tools, uplot, wheels
from tools.environment import LOGS, environment, python

SUFFIX = ".cdx.json"


def make(dist: Path, made: Iterable[Path]) -> Path:
    """Write the bill of the wheel for this Python, which is among those; return its path.

    raises  WheelFailed  it could not be installed, or has something without a licence
    """
    wheel = wheels.of_this_python(made)
    target = dist / f"{'-'.join(wheel.name.split('-')[:2])}{SUFFIX}"
    with tempfile.TemporaryDirectory(prefix="warren-sbom-") as place:
        venv = Path(place, "venv")
        inside = str(venv / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "--python", inside]
        wanted = ["install", "--only-binary", ":all:", f"{wheel}[broker]"]
        _run("installing what the bill is of", [*pip, *wanted])
        cyclonedx = [str(release_tools.python()), "-m", "cyclonedx_py", "environment"]
        options = ["--output-reproducible", "--of", "JSON", "-o", str(target), inside]
        _run("the bill of materials", [*cyclonedx, *options])
    bill = json.loads(target.read_text(encoding="utf-8"))
    (own,) = (one for one in bill["components"] if one["name"] == "warrenmq")
    own["components"] = [_part(wheels.DISTRIBUTION, wheels.proton_version(), "Apache-2.0", "pypi")]
    with zipfile.ZipFile(wheel) as opened:
        if any("/uplot/" in name for name in opened.namelist()):
            own["components"].append(_part("uplot", uplot.VERSION, "MIT", "npm"))
    # Where the wheel was is a path of this machine; its hash is in SHA256SUMS.
    own.pop("externalReferences", None)
    bare = [one["name"] for one in bill["components"] if not one.get("licenses")]
    target.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    console.say(
        f"   {target.name}: {len(bill['components'])} packages, {len(bare)} without licence"
    )
    if bare:
        raise wheels.WheelFailed(f"no licence is known of {', '.join(bare)}")
    return target


def _part(name: str, version: str, licence: str, kind: str) -> dict[str, object]:
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:{kind}/{name}@{version}",
        "licenses": [{"license": {"id": licence}}],
    }


def _run(title: str, command: list[str]) -> None:
    if not console.quiet(title, command, LOGS / "sbom.log", env=environment()):
        raise wheels.WheelFailed(title)
