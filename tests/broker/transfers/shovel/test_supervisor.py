"""How many processes of shovels and links a node starts, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.cluster.link_logins import LinkLogin
from warren_broker.transfers.federation.links import ExchangeLinks, FederationLinks
from warren_broker.transfers.shovel import supervisor
from warren_broker.transfers.shovel.process import WorkerStatus
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_broker.transfers.shovel.shovels import Shovels
from warren_broker.transfers.shovel.supervisor import (
    LOOK_MS,
    NEW_PER_LOOK,
    RUNNING_MAX,
    STARTS_PER_LOOK,
    WAITS,
    ManagedShovel,
    Supervisor,
    Wanted,
)
from warren_machines.metadata.records import Parameter
from warren_wire.admin.shovels import DONE, RUNNING, STARTING, TERMINATED, ShovelInfo
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import ClusterPlaces
from warren_wire.quoting import SHOWN_CHARACTERS_MAX

WANTED = 400
SEAL = UriSeal(lambda: bytes(64))
VALUE = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://far", "dest-queue": "b"}


class Logins:
    """Rights as a test has them."""

    def __init__(self) -> None:
        self.places = ClusterPlaces((5672,))
        self.why = ""
        self.right = "held"
        self.given: set[str] = set()
        self.last = 0

    def of(self, end: ShovelEnd, setter: str | None) -> list[LinkLogin]:
        return [LinkLogin(setter, uri.vhost) for uri in end.uris]

    def refusal(self, login: LinkLogin) -> str:
        return self.why

    def basis(self, login: LinkLogin) -> str:
        return self.right

    def give(self, login: LinkLogin) -> tuple[str, str]:
        self.last += 1
        self.given.add(f"link-{self.last}")
        return f"link-{self.last}", "secret"

    def take_back(self, names: tuple[str, ...]) -> None:
        self.given -= set(names)


class Process:
    """Runs as soon as it is started; one without memory does not start."""

    started: list[str] = []
    without_memory = False

    def __init__(
        self,
        loop: Any,
        job: dict[str, Any],
        on_status: Callable[[WorkerStatus], None],
        on_end: Callable[[str], None],
    ) -> None:
        if self.without_memory:
            raise OSError(12, "Cannot allocate memory")
        self.started.append(job["name"])
        on_status(WorkerStatus(RUNNING, "", False, 0, None, 0, RUNNING))
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Links(Supervisor):
    """As many as a test wants, in a loop of its own."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[Callable[[], None]] = []
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        loop = SimpleNamespace(clock=clock, call_later=self._later)
        host = SimpleNamespace(cluster_id="c1", node_id="a", leader=lambda group: "a")
        cluster: Any = SimpleNamespace(loop=loop, host=host)
        definitions: Any = SimpleNamespace(ready=True)
        self.logins = Logins()
        super().__init__(cluster, definitions, "here", self.logins, SEAL)
        self.names = [f"{i:04}" for i in range(WANTED)]
        self.value = {"of": "all"}

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms == LOOK_MS
        self.timers.append(call)

    def look(self) -> None:
        """The time of the next look has come."""
        self.now_ms += LOOK_MS
        (call,) = self.timers
        self.timers = []
        call()

    def wanted(self) -> Iterator[Wanted]:
        for name in self.names:
            yield ("/", name), Parameter("/", "link", name, self.value)

    def described(self, parameter: Parameter, node: str) -> tuple[bool, ShovelInfo]:
        return True, ShovelInfo(vhost="/", name=parameter.name, node=node)

    def job(self, parameter: Parameter) -> dict[str, Any]:
        return {"name": parameter.name, "value": VALUE}

    def done(self, shovel: ManagedShovel) -> None:
        raise AssertionError("a link does not end")

    def named(self, parameter: Parameter, limit: int = SHOWN_CHARACTERS_MAX) -> str:
        return f"link {parameter.name[:limit]}"

    def in_state(self, state: str) -> list[str]:
        """Names of those that are shown in a state."""
        return [info.name for info in self.infos() if info.state == state]


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    monkeypatch.setattr(Process, "started", [])
    monkeypatch.setattr(supervisor, "ShovelProcess", Process)
    made = Links()
    made.start({"scheme": "amqp", "host": "localhost", "port": 5672})
    return made


def test_a_node_without_links_does_not_wake_to_watch_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty wake-ups a second, half of an idle node's, were for links that there were not."""
    watched = []

    class Watched(Links):
        watch_ms = LOOK_MS

        def watch(self) -> None:
            watched.append(self.now_ms)

        def look(self) -> None:
            self.now_ms += LOOK_MS
            due, self.timers = self.timers, []
            for call in due:
                call()

    monkeypatch.setattr(supervisor, "ShovelProcess", Process)
    links = Watched()
    links.names = []
    links.start({"scheme": "amqp", "host": "localhost", "port": 5672})
    links.look()
    assert watched == [] and len(links.timers) == 1
    links.names = ["one"]
    for _ in range(2):
        links.look()
    assert watched == [2 * LOOK_MS, 3 * LOOK_MS] and len(links.timers) == 2
    links.names = []
    for _ in range(2):
        links.look()
    assert len(watched) == 2 and len(links.timers) == 1, "the last one has left"
    links.stop()
    links.look()
    assert links.timers == []


def test_many_links_start_at_a_bounded_rate_and_the_rest_waits_in_words(links: Links) -> None:
    looks = 1
    assert len(Process.started) == STARTS_PER_LOOK and len(links.infos()) == NEW_PER_LOOK
    while len(Process.started) < RUNNING_MAX:
        links.look()
        looks += 1
        assert len(Process.started) == STARTS_PER_LOOK * looks
    for _ in range(5):
        links.look()
    assert Process.started == links.names[:RUNNING_MAX]
    assert links.states("dynamic") == {
        STARTING: 0,
        RUNNING: RUNNING_MAX,
        TERMINATED: WANTED - RUNNING_MAX,
    }
    assert links.in_state(RUNNING) == links.names[:RUNNING_MAX]
    assert links.in_state(TERMINATED) == links.names[RUNNING_MAX:]
    assert {info.reason for info in links.infos() if info.state == TERMINATED} == {WAITS}
    # Three end: the next look starts as many of those that wait.
    del links.names[10:13]
    links.look()
    assert Process.started[RUNNING_MAX:] == links.names[RUNNING_MAX - 3 : RUNNING_MAX]
    assert len(links.in_state(RUNNING)) == RUNNING_MAX


def test_a_change_of_all_stops_all_and_starts_them_at_that_rate(links: Links) -> None:
    while len(Process.started) < RUNNING_MAX:
        links.look()
    links.value = {"of": "others"}
    links.look()
    assert len(links.in_state(RUNNING)) == STARTS_PER_LOOK


def test_processes_that_cannot_be_started_are_tried_again(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(Process.started)
    monkeypatch.setattr(Process, "without_memory", True)
    links.look()
    failed = links.in_state(TERMINATED)
    assert failed == links.names[STARTS_PER_LOOK : 2 * STARTS_PER_LOOK]
    reasons = {info.reason for info in links.infos() if info.state == TERMINATED}
    assert reasons == {"its process cannot be started: Cannot allocate memory"}
    monkeypatch.setattr(Process, "without_memory", False)
    for _ in range(3):
        links.look()
    assert set(failed) < set(Process.started) > set(before)


def test_one_whose_user_may_not_enter_the_vhost_has_no_process(links: Links) -> None:
    links.names = []
    links.look()
    before = list(Process.started)
    links.names = ["one"]
    links.logins.why = 'user "pm" may not connect to vhost "vb"'
    for _ in range(3):
        links.look()
    assert Process.started == before
    (info,) = links.infos()
    assert (info.state, info.reason) == (TERMINATED, links.logins.why) and info.access_refused
    links.logins.why, links.logins.right = "", "given"
    links.look()
    assert Process.started == [*before, "one"]


def test_one_whose_user_loses_a_right_is_stopped_and_its_login_is_forgotten(links: Links) -> None:
    links.names = ["0000"]
    links.look()
    process: Any = links._here["/", "0000"].process
    assert process is not None and len(links.logins.given) == 2
    links.logins.why, links.logins.right = "refused", "taken away"
    links.look()
    assert process.stopped and not links.logins.given
    assert links.in_state(TERMINATED) == ["0000"]


class Ending(Links):
    """One that ends by itself; `given` is what is set, the same object until it is set again."""

    def __init__(self) -> None:
        super().__init__()
        self.given: Parameter | None = self.setting()

    def setting(self) -> Parameter:
        """The same definition, set once more."""
        return Parameter("/", "shovel", "0000", dict(self.value))

    def wanted(self) -> Iterator[Wanted]:
        if self.given is not None:
            yield ("/", self.given.name), self.given

    def done(self, shovel: ManagedShovel) -> None:
        self.end(shovel)
        shovel.finished = True


@pytest.mark.parametrize("set_while_it_ran", [False, True])
def test_one_that_has_ended_and_is_set_again_at_once_runs_again(
    monkeypatch: pytest.MonkeyPatch, set_while_it_ran: bool
) -> None:
    told: list[Callable[[WorkerStatus], None]] = []

    class Ends(Process):
        def __init__(self, loop: Any, job: Any, on_status: Any, on_end: Any) -> None:
            super().__init__(loop, job, on_status, on_end)
            told.append(on_status)

    monkeypatch.setattr(Process, "started", [])
    monkeypatch.setattr(supervisor, "ShovelProcess", Ends)
    made = Ending()
    made.start({"scheme": "amqp", "host": "localhost", "port": 5672})
    if set_while_it_ran:  # which changes nothing
        made.given = made.setting()
        made.look()
    assert Process.started == ["0000"]
    told[0](WorkerStatus(DONE, "", False, 7, 0, 0, RUNNING))
    for _ in range(3):  # its removal is under way
        made.look()
    assert Process.started == ["0000"]
    made.given = made.setting()  # it was removed since the last look, and set again
    made.look()
    assert Process.started == ["0000", "0000"]
    assert made.in_state(RUNNING) == ["0000"]
    made.given = None
    made.look()
    assert not made.infos()


@pytest.mark.parametrize(
    ("kind", "differs"),
    [
        *((Shovels, part) for part in ("vhost", "name")),
        *((FederationLinks, part) for part in ("vhost", "name", "of")),
        *((ExchangeLinks, part) for part in ("vhost", "name", "of")),
    ],
)
def test_names_that_differ_behind_200_characters_had_one_relay(
    kind: Callable[..., Supervisor], differs: str
) -> None:
    """Two shovels of a queue took from each other what was under way: 68 of 1,500 came twice."""
    host = SimpleNamespace(cluster_id="c1")
    cluster = SimpleNamespace(
        host=host,
        loop=SimpleNamespace(clock=None),
        handlers={},
        on_peer_down=[],
        on_peer_suspected=[],
    )
    more = [{}] if kind is Shovels else []
    supervised = kind(cluster, SimpleNamespace(), "here", Logins(), SEAL, *more)
    relays = set()
    for end in "ab":
        vhost, name, of = (
            "n" * 254 + (end if differs == part else "-") for part in ("vhost", "name", "of")
        )
        parameter = Parameter(vhost, "shovel", name, {"queue": of, "exchange": of})
        relays.add(supervised._relay(parameter))
        assert len(supervised.named(parameter)) < 800, "names are cut in lines of the log"
    assert len(relays) == 2
