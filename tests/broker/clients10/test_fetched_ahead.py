"""Many links of one connection fetch: what the node holds for them is bounded over all of them."""

from __future__ import annotations

from typing import Any

from broker.clients10.test_connection import Client, new, opened_receiver
from warren_broker.clients10 import connection_requests as asks
from warren_broker.clients10.connection_bounds import FETCHES_MAX
from warren_wire import errors

LIMIT = 10_000
SIZE = 4_000
LINKS = 32


def claim(client: Client, number: int, credit: int = 0) -> Any:
    """A link for 100 messages of a claim."""
    address = f"/queues/q/readers/r/claims/{number}?first=0&last=100"
    receiver = opened_receiver(client, f"claim-{number}", address)
    if credit:
        receiver.flow(credit)
        client.turn()
    return receiver


def answer(client: Client) -> bool:
    """Answer the oldest fetch with one message; False: there is none."""
    for at, request in enumerate(client.requests):
        if isinstance(request, asks.FetchClaim):
            del client.requests[at]
            piece = asks.Piece(((1, 0, 0, 0, 0),), bytes(SIZE))
            client.connection.answer(request.token, asks.Fetched((piece,), 1))
            return True
    return False


def fetches(client: Client) -> list[int]:
    return [r.source.number for r in client.requests if isinstance(r, asks.FetchClaim)]


def test_links_that_the_client_reads_one_after_another_share_the_bound() -> None:
    """Each fetched as much as one alone may: the node held 32 times the bound."""
    client = Client(new(send_ahead_bytes_max=LIMIT))
    for number in range(LINKS):
        claim(client, number)
    assert len(fetches(client)) == FETCHES_MAX
    while answer(client):
        client.turn()
        assert client.connection.fetched.held_bytes <= LIMIT + FETCHES_MAX * SIZE


def test_a_link_is_served_while_others_without_credit_hold_all_there_is_room_for() -> None:
    client = Client(new(send_ahead_bytes_max=LIMIT))
    for number in range(LINKS):
        claim(client, number)
    while answer(client):
        client.turn()
    first = claim(client, 100, credit=1_000)
    for _ in range(100):
        assert fetches(client) == [100], "one beyond the bound, at a time"
        answer(client)
        client.turn()
    client.turn()
    assert first.queued == 100 and "PN_LINK_REMOTE_CLOSE" in client.seen


def test_the_room_of_a_link_that_ends_is_used_by_others() -> None:
    client = Client(new(send_ahead_bytes_max=LIMIT))
    receivers = [claim(client, number) for number in range(LINKS)]
    while answer(client):
        client.turn()
    for receiver in receivers[: LINKS - 1]:
        receiver.close()
    client.turn()
    while answer(client):
        client.turn()
    assert 0 < client.connection.fetched.held_bytes <= LIMIT + SIZE
    receivers[-1].close()
    client.turn()
    assert client.connection.fetched.held_bytes == 0


def test_a_refused_fetch_makes_room_for_the_next_link() -> None:
    client = Client(new(send_ahead_bytes_max=LIMIT))
    for number in range(LINKS):
        claim(client, number)
    seen = set()
    for _ in range(LINKS):
        request = next(r for r in client.requests if isinstance(r, asks.FetchClaim))
        client.requests.remove(request)
        seen.add(request.source.number)
        client.connection.answer(request.token, errors.ClaimNotOpen("claim"))
        client.turn()
    assert seen == set(range(LINKS)) and not fetches(client)
