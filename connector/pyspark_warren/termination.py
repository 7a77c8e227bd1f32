"""What Spark's process for a streaming source does before SIGTERM ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

WORK_S_MAX: Final = 3.0
"""How long the end of the process is put off."""


def before_termination(work: Callable[[], None]) -> None:
    """Do that first when the process is terminated, as it is by `query.stop()`.

    A signal's handler runs in the main thread, perhaps in the middle of a request, which the work
    must not interrupt, and may have to wait for. So another thread does it, and then ends the
    process as the signal does. It does nothing outside the main thread, and where the process
    handles the signal already.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        threading.Thread(target=end, name="warren-end", daemon=True).start()

    def end() -> None:
        working = threading.Thread(target=work, name="warren-last", daemon=True)
        working.start()
        working.join(WORK_S_MAX)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)
