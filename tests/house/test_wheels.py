"""The wheels are the same wherever they are built, and say what they are for."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import pythons, wheels
from tools.environment import ROOT

METADATA = "Name: warrenmq\nRequires-Dist: python-qpid-proton>=0.40\n"
FILES = {
    "warrenmq-1.dist-info/METADATA": METADATA.encode(),
    "warrenmq-1.dist-info/WHEEL": b"Root-Is-Purelib: true\nTag: py3-none-any\n",
    "warren/kernel.so": b"\x7fELF",
    "warren/__init__.py": b"",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_same_files_are_the_same_wheel(tmp_path: Path) -> None:
    for name, files in (("a", FILES), ("b", dict(reversed(FILES.items())))):
        wheels.write_wheel(tmp_path / name, files, 1_700_000_000)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as opened:
        *others, record = opened.namelist()
        rows = list(csv.reader(io.StringIO(opened.read(record).decode())))
        assert [row[0] for row in rows] == [*others, record] and set(others) == set(FILES)
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"\x7fELF").digest()).rstrip(b"=")
        assert ["warren/kernel.so", f"sha256={digest.decode()}", "4"] in rows
        assert opened.getinfo("warren/kernel.so").external_attr >> 16 & 0o777 == 0o755


def test_the_wheel_for_this_python_is_not_abi3(
    tmp_path: Path,
) -> None:
    tag, _, machine = wheels.here().partition("-")
    names = [f"warrenmq-1-{each}-manylinux_2_17_{machine}.whl" for each in (f"{tag}-{tag}", "x-y")]
    names += [f"warrenmq-1-{tag}-abi3-manylinux_2_17_{machine}.whl", f"warrenmq-1-{tag}-{tag}-z"]
    for name in names:
        (tmp_path / name).touch()
    assert wheels.of_this_python(tmp_path.iterdir()).name == names[0]


def test_an_sdist_does_not_show_who_packed_it(tmp_path: Path) -> None:
    packed = []
    for number, names in enumerate((("x", "y"), ("y", "x"))):
        path = tmp_path / f"{number}.tar.gz"
        with tarfile.open(path, "w:gz") as opened:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.uid, member.mtime, member.mode = 1, number, number, 0o600
                opened.addfile(member, io.BytesIO(b"1"))
        packed.append(wheels.repacked(path, 1_700_000_000).read_bytes())
    assert packed[0] == packed[1]


def test_a_wheel_with_an_engine_requires_no_other() -> None:
    made = wheels._adapted(FILES, wheels.Target("abi3", "aarch64"))
    assert b"Requires-Dist: cffi" in made["warrenmq-1.dist-info/METADATA"]
    assert b"qpid" not in made["warrenmq-1.dist-info/METADATA"]
    assert made["warrenmq-1.dist-info/WHEEL"].decode().splitlines() == [
        "Root-Is-Purelib: false",
        "Tag: cp311-abi3-manylinux_2_17_aarch64",
        "Tag: cp311-abi3-manylinux2014_aarch64",
    ]
    with pytest.raises(wheels.WheelFailed, match="names python-qpid-proton 0 times"):
        wheels._adapted(made, wheels.Target("cp312", "x86_64"))


def test_wheels_are_chosen_by_name_or_part() -> None:
    assert list(map(str, wheels.chosen(["cp313", "sdist"]))) == [
        "sdist",
        "cp313-x86_64",
        "cp313-aarch64",
    ]
    assert len(wheels.chosen([])) == 12
    with pytest.raises(wheels.WheelFailed, match="'cp310' is none of sdist, pure, "):
        wheels.chosen(["cp310"])


def test_a_missing_python_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "find", lambda minor: None)
    assert wheels.run(["--only", "cp313-x86_64", "--no-try"]) == 1
    assert "no wheel for cp313: there is no python3.13 on PATH" in capfd.readouterr().out


def test_a_shim_without_its_python_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv has one for each version that any of its Pythons has, which fails when it is run."""
    shims, own = tmp_path / "shims", tmp_path / "own"
    minor = sys.version_info[1]
    for folder, text in ((shims, "exit 127"), (own, f'exec {sys.executable} "$@"')):
        folder.mkdir()
        script = folder / f"python3.{minor}"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(shims), str(own), os.environ["PATH"])))
    monkeypatch.setattr(sys, "executable", str(shims / f"python3.{minor}"))
    assert pythons.find(minor) == own / f"python3.{minor}"


def test_every_promised_version_has_a_wheel() -> None:
    promised = [
        int(one.rpartition(".")[2])
        for one in PROJECT["classifiers"]
        if one.startswith("Programming Language :: Python :: 3.")
    ]
    assert list(wheels.MINORS) == promised


def test_no_extra_is_for_the_project_itself() -> None:
    assert list(PROJECT["optional-dependencies"]) == [
        "cli",
        "broker",
        "backup",
        "oauth2",
        "otel",
        "connector",
        "spark3",
        "spark",
    ]
    notebook = json.loads((ROOT / "examples/notebook/departures.ipynb").read_text())
    assert "demo]" not in json.dumps(notebook)
