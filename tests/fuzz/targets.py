"""All targets by name."""

from __future__ import annotations

from tests.fuzz import kernel_targets, storage_targets, text_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    each.name: each
    for each in (*kernel_targets.TARGETS, *storage_targets.TARGETS, *text_targets.TARGETS)
}
