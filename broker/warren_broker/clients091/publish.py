"""A channel's publishes, checked, then handed to the broker by the run; transactions."""

from __future__ import annotations

from typing import Any

from warren_broker.access import requests
from warren_broker.access.message_checks import REPLY_TO, first_refused, keyed_bytes
from warren_broker.clients091 import consume
from warren_broker.clients091.confirms import CheckedRun
from warren_broker.clients091.state import Channel, TableRun, Transaction
from warren_wire import errors
from warren_wire.amqp091 import methods, properties
from warren_wire.amqp091.methods import Method
from warren_wire.errors import Refusal
from warren_wire.kernel import (
    CC,
    DIRECT_REPLY_TO,
    HAS_DEATHS,
    USER_ID,
    MessageTable,
    distinct_routes,
    format_return,
    set_deaths_apart,
)
from warren_wire.relay_names import CAPABILITY


def publish(channel: Channel, item: TableRun) -> None:
    """Hand the run to the broker, up to the first refused message; raise its refusal."""
    first, last = item.run.first, item.run.last
    if item.run.flags & CC:
        channel.connection.keyed_bytes += keyed_bytes(item.table, first, last)
    routes = _routes(item)
    last, refusal = channel.connection.access.refused_route(item.table, routes, first, last)
    last, refused = first_refused(item.table, first, last, item.run.flags, bool(channel.reply_name))
    refusal = refused or refusal
    if item.run.flags & (USER_ID | CC):
        access = channel.connection.access
        last, refused = access.refused_message(item.table, first, last, item.run.flags)
        refusal = refused or refusal
    if last > first:
        table = item.table
        if item.run.flags & DIRECT_REPLY_TO:
            table, first, last = _with_reply_name(channel, table, first, last)
        if item.run.flags & HAS_DEATHS:
            set_deaths_apart(table, first, last)
        entries = item.table.routes.entries
        mandatory = True in [entries[route].mandatory for route in routes]
        checked = CheckedRun(table, first, last, mandatory, item.run.flags)
        if channel.tx is not None:
            channel.publish_later(channel.tx, checked)
        else:
            _hand_over(channel, checked)
    if refusal is not None:
        raise refusal


def _routes(item: TableRun) -> list[int]:
    run = item.run
    return [run.route] if run.route >= 0 else distinct_routes(item.table, run.first, run.last)


def _hand_over(channel: Channel, run: CheckedRun) -> None:
    confirm = channel.confirm or channel.tx is not None
    number = channel.publishes.published(run.last - run.first) if confirm else 0
    connection = channel.connection
    token = connection.new_token()
    connection.publishes.add(token, channel, run, number)
    connection.requests.append(
        requests.PublishRequest(
            token=token,
            session=channel.session,
            channel=channel.number,
            table=run.table,
            first=run.first,
            last=run.last,
            confirm=bool(number),
            mandatory=run.mandatory,
            flags=run.flags,
            relayed=CAPABILITY in connection.capabilities,
        )
    )


def _with_reply_name(
    channel: Channel, table: MessageTable, first: int, last: int
) -> tuple[MessageTable, int, int]:
    """Return the messages with the pseudo queue's name replaced by the channel's routable one."""
    changed = MessageTable()
    for i in range(first, last):
        raw = table.properties_of(i)
        if table.flags(i) & DIRECT_REPLY_TO and properties.decode(raw).reply_to == REPLY_TO:
            raw = properties.replace(raw, reply_to=channel.reply_name)
        changed.append(
            table.route(i), raw, table.body(i), table.priority(i), table.ttl_ms(i), table.flags(i)
        )
    return changed, 0, changed.count


# ------------------------------------------------------------------ returns


def return_unroutable(channel: Channel, table: MessageTable, positions: list[int]) -> int:
    """Write basic.return for the mandatory ones among the unroutable messages; return how many."""
    connection, before = channel.connection, channel.returned
    for at in positions:
        if table.route(at).mandatory:
            channel.returned += 1
            connection.returned += 1
            format_return(
                connection.out,
                table,
                at,
                channel.number,
                errors.NoRoute.reply_code,
                errors.NoRoute.word,
                connection.frame_max,
            )
    return channel.returned - before


def _confirm_select(channel: Channel, method: methods.ConfirmSelect) -> None:
    if channel.tx is not None:
        raise errors.PreconditionFailed("cannot switch from tx to confirm mode")
    channel.confirm = True
    if not method.no_wait:
        channel.send(methods.ConfirmSelectOk())


# ------------------------------------------------------------------ transactions


def _tx_select(channel: Channel, method: methods.TxSelect) -> None:
    if channel.confirm:
        raise errors.PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.tx is None:
        channel.tx = Transaction()
    channel.send(methods.TxSelectOk())


def _transaction(channel: Channel) -> Transaction:
    if channel.tx is None:
        raise errors.PreconditionFailed("channel is not transactional")
    return channel.tx


def _tx_commit(channel: Channel, method: methods.TxCommit) -> None:
    """Publish, then acknowledge; commit-ok follows once every queue has answered."""
    tx = _transaction(channel)
    channel.connection.access.stay()

    def committed(_: requests.RequestDone) -> None:
        channel.tx = Transaction()
        channel.send(methods.TxCommitOk())

    tx.commit = channel.hold(committed)
    channel.publishes.forget()
    for run in channel.take_publishes(tx):
        _hand_over(channel, run)
    for kind, held in tx.acks:
        consume.settle(channel, kind, held)
    tx.acks = []
    channel.connection.publishes.to_commit.append(channel)


def finished_commit(
    channel: Channel,
) -> tuple[requests.Token, requests.RequestDone | Refusal] | None:
    """Return a commit's token and result once all its publishes are answered, else None."""
    tx = channel.tx
    if tx is None or not tx.commit or not channel.publishes.idle:
        return None
    token, tx.commit = tx.commit, 0
    if not channel.publishes.forget():
        return token, requests.RequestDone()
    channel.tx = Transaction()
    return token, errors.PreconditionFailed("partial tx completion")


def _tx_rollback(channel: Channel, method: methods.TxRollback) -> None:
    tx = _transaction(channel)
    channel.take_publishes(tx)
    channel.deliveries.put_back([run for _, held in tx.acks for run in held])
    channel.tx = Transaction()
    channel.send(methods.TxRollbackOk())


HANDLERS: dict[type[Method], Any] = {
    methods.ConfirmSelect: _confirm_select,
    methods.TxSelect: _tx_select,
    methods.TxCommit: _tx_commit,
    methods.TxRollback: _tx_rollback,
}
"""Method to its handler."""
