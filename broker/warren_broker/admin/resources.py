"""The handlers of all requests of the administration, whichever way they come in."""

from __future__ import annotations

from warren_broker.admin import (
    batches,
    bindings,
    claims,
    connections,
    definitions,
    delayed,
    exchanges,
    limits,
    members,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    relays,
    shovels,
    sinks,
    statistics,
    users,
    vhosts,
)
from warren_broker.admin.handlers import handlers_of

HANDLERS = handlers_of(
    *(batches, bindings, claims, connections, definitions, delayed, exchanges, limits, members),
    *(overview, parameters, permissions, policies, queues, relays, shovels, sinks, statistics),
    *(users, vhosts),
)
