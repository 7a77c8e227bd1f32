"""How long tests wait: the one place that says what a busy machine may take.

A limit that only ends a failing test costs nothing. So it is far longer than the wait: a machine
with twenty times as much work as processors is no reason to fail.
"""

from __future__ import annotations

PATIENCE_S = 120.0
"""For what must happen: an answer, the end of a thread or process, a state that is reached."""
PROMPTLY_S = 30.0
"""For what must happen without waiting for a time limit. What is tested would take longer, or for
ever, if it did wait: the test sets that limit to PATIENCE_S or more, or there is none."""
