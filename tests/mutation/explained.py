"""Mutants that no test can notice, each with the reason."""

from __future__ import annotations

_CORE = "raft/warren_raft/core/"
_QUEUE = "broker/warren_machines/queue/"

EXPLAINED: dict[tuple[str, str, str], str] = {
    (
        _CORE + "leader.py",
        "ReplaceComparisonOperator_Gt_GtE",
        "if index > log.committed and index >= lead.first:",
    ): "to commit what is committed changes nothing",
    (
        _CORE + "leader.py",
        "AddNot",
        "if not send(node, lead, to, progress, config.append_bytes_max):",
    ): "the next Ready, which the host takes in the same turn, sends the rest of the window",
    (
        _QUEUE + "claims/claim.py",
        "ReplaceComparisonOperator_Gt_GtE",
        "if lost > reader.settled and not any(number <= lost for number in reader.claims):",
    ): "to go on after what is settled changes nothing: `opened` is never below `settled`",
    (
        _CORE + "snapshot_transfer.py",
        "NumberReplacer",
        "self.under_way = 0",
    ): "the answer to the offer, before which no chunk is sent, sets it again",
}
"""(file, operator, the line without its indentation) → why the mutant behaves as the original."""
