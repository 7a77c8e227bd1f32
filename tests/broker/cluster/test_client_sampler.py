"""Histories of connections and channels: idle ones cost nothing, and what ends leaves nothing."""

from __future__ import annotations

import msgspec

from warren_broker.cluster.client_sampler import ClientCounted, ClientSampler
from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    CONNECTION_SAMPLES_MAX,
    OCTETS,
    PUBLISH,
    sample_width,
)
from warren_broker.counting.pair_counts import Row
from warren_wire.admin.connections import ChannelInfo, ConnectionInfo

CHANNEL = ChannelInfo(1, 0, 0, 0, False, False, session=70)
CONNECTION = ConnectionInfo(
    *("c", "n1", "guest", "/", "AMQP 0-9-1", "127.0.0.1", 1, "127.0.0.1", 2),
    *(False, 1, 10, 10, 60, 0, 0, 0),
    open_channels=(CHANNEL,),
)


class Client:
    """A connection with one channel."""

    def __init__(self) -> None:
        self.octets: Row = [0, 0]
        self.row: Row = [0] * len(CHANNEL_COUNTED)
        self.open = True

    def counted(self) -> ClientCounted | None:
        return ClientCounted([*self.octets], [(70, [*self.row])]) if self.open else None


def look(made: ClientSampler, at_ms: int) -> None:
    made.visit(made.begin(), (at_ms, at_ms))
    made.end(at_ms)


def samples(shown: ConnectionInfo | ChannelInfo, names: tuple[str, ...]) -> int:
    """How many samples there are."""
    assert shown.samples is not None
    return len(shown.samples.numbers) // sample_width(names)


def test_connections_and_channels_have_rates_and_samples_of_what_has_changed() -> None:
    client = Client()
    made = ClientSampler({3: client}, 0)
    client.octets = [1_000, 500]
    look(made, 1_000)
    shown = made.with_rates(3, CONNECTION, True)
    assert shown.rates[:2] == (1_000.0, 500.0) and samples(shown, OCTETS) == 1
    assert samples(shown.open_channels[0], CHANNEL_COUNTED) == 0, "it has done nothing"
    client.row[PUBLISH] = 10
    look(made, 2_000)
    shown = made.with_rates(3, CONNECTION, True)
    (channel,) = shown.open_channels
    assert channel.rates[PUBLISH] == 10.0 and not any(shown.rates)
    assert samples(channel, CHANNEL_COUNTED) == samples(shown, OCTETS) == 1
    look(made, 3_000)
    shown = made.with_rates(3, CONNECTION, False)
    assert not any(shown.rates) and shown.samples is None
    client.open = False
    look(made, 4_000)
    shown = made.with_rates(3, CONNECTION, True)
    assert not samples(shown, OCTETS) and not samples(shown.open_channels[0], CHANNEL_COUNTED)


def test_many_busy_connections_share_the_samples() -> None:
    clients = {number: Client() for number in range(1_000)}
    made = ClientSampler(clients, 0)
    for at in range(1, 70):
        for client in clients.values():
            client.octets = [at, at]
        look(made, at * 1_000)
    kept = [samples(made.with_rates(number, CONNECTION, True), OCTETS) for number in clients]
    assert 1_000 < sum(kept) <= CONNECTION_SAMPLES_MAX and max(kept) <= 60


def test_what_an_older_node_answers_can_be_read() -> None:
    """It does not know rates, samples and dropped messages."""
    known = msgspec.to_builtins(CONNECTION)
    for one in (known, *known["open_channels"]):
        for key in ("rates", "samples", "dropped"):
            one.pop(key, None)
    assert msgspec.convert(known, ConnectionInfo) == CONNECTION
