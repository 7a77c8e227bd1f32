"""A process that tells how it was started, for a test of `warm_python`.

python -m spark_world.probe tell    print it, end with exit code 7
python -m spark_world.probe wait    print the process's number, wait for a signal
"""

from __future__ import annotations

import json
import os
import signal
import sys

EXIT_CODE = 7


def main() -> None:
    """Tell, or wait."""
    if sys.argv[1] == "wait":
        print(os.getpid(), flush=True)
        signal.pause()
    told = {
        "arguments": sys.argv,
        "directory": os.getcwd(),
        "environment": {name: os.environ.get(name) for name in ("SAID", "HOME")},
        "paths": [path for path in sys.path if path.endswith(("connector", "broker", "warren"))],
        "input": sys.stdin.read(),
        "hash": hash("a text"),
        "interpreter": sys.executable,
    }
    print(json.dumps(told))
    print("pyarrow" in sys.modules, file=sys.stderr)
    sys.exit(EXIT_CODE)


if __name__ == "__main__":
    main()
