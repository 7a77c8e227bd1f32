"""Definitions of a running cluster: exported, imported all or not at all, loaded at the start."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner, Result

from live.conftest import eventually
from machines.definition_files.around import sample
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import (
    AccessRefused,
    Conflict,
    NotFound,
    PeerError,
    UsageError,
    WarrenError,
)
from warren.local import LocalCluster
from warren.uri import Address
from warren_machines.metadata import passwords

IDLE_SHOVEL = {"src-uri": "amqp://127.0.0.1:1", "src-queue": "q", "dest-uri": "amqp://"}
pytestmark = pytest.mark.live


def run(cluster: LocalCluster, *arguments: str, exit_code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*arguments, "--uri", cluster.uri])
    assert done.exit_code == exit_code, (done.output, done.exception)
    return done


def log_in(cluster: LocalCluster, user: str, password: str, vhost: str, node: int = 0) -> Any:
    credentials = pika.PlainCredentials(user, password)
    port = cluster.nodes[node].amqp_port
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost, credentials))


def with_queues(count: int, kind: str = "quorum") -> dict[str, Any]:
    queues = [
        {
            "name": f"many-{number:05}",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": kind},
        }
        for number in range(count)
    ]
    return {"queues": queues}


def user_entry(name: str, password: str) -> dict[str, Any]:
    hashed = passwords.hash_password(password, b"salt")
    return {"name": name, "password_hash": hashed, "tags": ["administrator"]}


def test_an_export_of_rabbitmq_serves_its_clients(cluster: LocalCluster, tmp_path: Path) -> None:
    """A dry run changes nothing; users log in with their passwords; a second import is a no-op."""
    file = tmp_path / "rabbitmq.json"
    file.write_bytes(sample("4.3.6"))
    with cluster.connect() as connection:
        admin = Admin(connection)
        before = admin.definitions.export().document
        tried = run(cluster, "definitions", "import", str(file), "--dry-run")
        assert "would be created: queue 'work.quorum' in vhost '/'" in tried.output
        assert "log.stream" in tried.output and "stream" in tried.output
        assert admin.definitions.export().document == before
        done = run(cluster, "definitions", "import", str(file), "--json")
        report = json.loads(done.output)
        assert report["counts"]["queues"]["created"] == 9 and not report["dry_run"]
        assert report["not_honoured_count"] == len(report["not_honoured"]) > 5
        again = admin.definitions.load(file.read_bytes())
        assert again.created == again.changed == ()
    for node in range(3):
        log_in(cluster, "watcher", "made-up-2", "billing", node).close()
    client = log_in(cluster, "operator", "made-up-1", "/", 1)
    channel = client.channel()
    channel.confirm_delivery()
    # declared without a type: agrees with the queue
    channel.queue_declare(
        "work.moved", durable=True, arguments={"x-max-length": 1000, "x-overflow": "reject-publish"}
    )
    channel.basic_publish("amq.direct", "work", b"to a quorum queue", mandatory=True)
    assert channel.basic_get("work.quorum", True)[2] == b"to a quorum queue"
    client.close()


def test_export_and_import_into_another_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "warren.json"
    run(cluster, "definitions", "export", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it holds hashes of passwords"
    with LocalCluster(nodes=1, directory=tmp_path / "other") as other, other.connect() as there:
        admin = Admin(there)
        report = admin.definitions.load(file.read_bytes())
        assert all(
            "has no effect" in one.reason or "members" in one.reason for one in report.not_honoured
        )
        # as guest, with the password that the import has given it
        kinds = {queue.name: (queue.type, queue.replicas) for queue in admin.queues.list()}
        assert kinds.get("work.quorum", ("quorum", ("node-0",))) == ("quorum", ("node-0",))
        wanted = json.loads(file.read_bytes())
        assert admin.definitions.export().document == wanted


def test_a_file_that_is_refused_changes_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)
        limited = {"x-queue-type": "quorum", "x-max-length": 5}
        admin.queues.declare("many-00007", arguments=limited)
        before = admin.definitions.export().document
        with pytest.raises(Conflict, match="arg .x-max-length. for queue .many-00007."):
            admin.definitions.load(json.dumps(with_queues(10)).encode())
        for data in (b"", b"[]", b'{"queues": 5}', b'{"users": [{"name": "\xff"}]}'):
            with pytest.raises((PeerError, UsageError), match="definitions"):
                admin.definitions.load(data)
        with pytest.raises(NotFound, match="no vhost 'nowhere'"):
            admin.definitions.load(b"{}", "nowhere")
        with pytest.raises(NotFound, match="no vhost 'nowhere'"):
            admin.definitions.export("nowhere")
        assert admin.definitions.export().document == before
        admin.queues.delete("many-00007")
    file = tmp_path / "missing.json"
    refused = CliRunner().invoke(app, ["definitions", "import", str(file), "--uri", cluster.uri])
    assert isinstance(refused.exception, UsageError) and "cannot read" in str(refused.exception)


def test_only_administrators_export_and_import(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).users.put("pol", password="p", tags=["policymaker", "monitoring"])
        Admin(connection).permissions.put("/", "pol", configure="", write="", read="")
    hosts = cluster.address.hosts
    with Connection(Address(hosts=hosts, user="pol", password="p")) as connection:
        admin = Admin(connection)
        for vhost in (None, "/"):
            with pytest.raises(AccessRefused):
                admin.definitions.export(vhost)
            for dry_run in (False, True):
                with pytest.raises(AccessRefused):
                    admin.definitions.load(b"{}", vhost, dry_run=dry_run)
        admin.parameters.put("shovel", "/", "s", IDLE_SHOVEL)
        assert "s" in [one.name for one in admin.parameters.list("shovel", "/")]
        admin.parameters.delete("shovel", "/", "s")
        with pytest.raises(AccessRefused):
            admin.global_parameters.list()
        with pytest.raises(AccessRefused):
            admin.global_parameters.put("g", 1)


def test_parameters_from_the_command_line(cluster: LocalCluster) -> None:
    value = '{"uri": "amqp://up", "max-hops": 2}'
    run(cluster, "parameters", "set", "federation-upstream", "up", value)
    run(cluster, "global-parameters", "set", "cluster_tags", '["a", 1, null]')
    shown = json.loads(run(cluster, "parameters", "list", "--json").output)
    assert {"uri": "amqp://up", "max-hops": 2} in [one["value"] for one in shown]
    shown = json.loads(run(cluster, "global-parameters", "list", "--json").output)
    assert {"name": "cluster_tags", "value": ["a", 1, None]} in shown
    with cluster.connect() as connection:
        admin = Admin(connection)
        for component, given, reason in (
            ("federation-upstream", {"max-hops": 2}, 'Key "uri" not found'),
            ("federation-upstream", {"uri": "a", "colour": 1}, "Unrecognised terms"),
            ("federation-upstream", {"uri": "a", "expires": "x"}, "expires should be a number"),
            ("shovel", [], "should be a JSON object"),
            ("policy", {}, "component 'policy' not found"),
        ):
            with pytest.raises((PeerError, UsageError, Conflict), match=reason):
                admin.parameters.put(component, "/", "bad", given)
    run(cluster, "parameters", "clear", "federation-upstream", "up")
    run(cluster, "global-parameters", "clear", "cluster_tags")
    gone = CliRunner().invoke(
        app, ["parameters", "clear", "federation-upstream", "up", "--uri", cluster.uri]
    )
    assert isinstance(gone.exception, NotFound)


@pytest.mark.parametrize("seen", [False, True])
def test_an_import_is_whole_or_nothing_when_its_node_is_killed(tmp_path: Path, seen: bool) -> None:
    count = 400
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        outcome: list[Any] = []

        def importing() -> None:
            with Connection(cluster.node_address(0)) as connection:
                data = json.dumps(with_queues(count)).encode()
                try:
                    outcome.append(Admin(connection).definitions.load(data))
                except WarrenError as error:
                    outcome.append(error)

        with Connection(cluster.node_address(0)) as connection:
            Admin(connection).overview()
        thread = threading.Thread(target=importing)
        thread.start()
        with Connection(cluster.node_address(1)) as connection:
            admin = Admin(connection)
            admin.overview()
            if seen:
                eventually(lambda: admin.queues.list() or outcome, "the import is applied there")
            cluster.kill(0)
            found = len(admin.queues.list())
            assert found in (0, count), found
        cluster.start(0)
        thread.join()
        with cluster.connect() as connection:
            admin = Admin(connection)
            admin.definitions.load(json.dumps(with_queues(count)).encode())
            queues = admin.queues.list()
            assert len(queues) == count
            eventually(
                lambda: all(admin.queues.get(one.name).leader for one in queues[::40]),
                "all are led",
            )


# ------------------------------------------------------------------ at the start


def loading(tmp_path: Path, document: Any) -> Path:
    file = tmp_path / "definitions.json"
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    file.write_bytes(data)
    return file


def boot_document(**more: Any) -> dict[str, Any]:
    grant = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {
        "vhosts": [{"name": "/"}],
        "users": [user_entry("guest", "guest")],
        "permissions": [grant],
        **with_queues(5),
        **more,
    }


def test_a_cluster_loads_its_definitions_once(tmp_path: Path) -> None:
    """They replace the default user; what is deleted later stays so when nodes start again."""
    file = loading(tmp_path, boot_document())
    settings = {"load_definitions": str(file), "default_user": "unwanted"}
    with LocalCluster(nodes=3, directory=tmp_path / "c", settings=settings) as cluster:
        with cluster.connect() as connection:
            admin = Admin(connection)
            assert [user.name for user in admin.users.list()] == ["guest"]
            assert [queue.replicas for queue in admin.queues.list()] == [
                ("node-0", "node-1", "node-2")
            ] * 5
            admin.queues.delete("many-00003")
        cluster.restart(1)
        cluster.restart(0, kill=True)
        with cluster.connect() as connection:
            assert len(Admin(connection).queues.list()) == 4, "deleted by an operator"
        eventually(lambda: "unchanged, not loaded again" in cluster.log(1), "it is logged")
        loading(tmp_path, boot_document(**with_queues(7)))
        cluster.restart(2)
        with cluster.connect() as connection:
            loaded = Admin(connection)
            eventually(lambda: len(loaded.queues.list()) == 7, "another file, on every node")


def test_without_skipping_every_start_loads(tmp_path: Path) -> None:
    file = loading(tmp_path, boot_document())
    settings = {"load_definitions": str(file), "definitions": {"skip_if_unchanged": False}}
    with LocalCluster(nodes=1, directory=tmp_path / "c", settings=settings) as cluster:
        with cluster.connect() as connection:
            Admin(connection).queues.delete("many-00003")
        cluster.restart(0)
        with cluster.connect() as connection:
            assert len(Admin(connection).queues.list()) == 5


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"queues": [', "definitions that are not JSON"),
        (with_queues(1), "no vhost '/' in the file or in the cluster"),
        ({"vhosts": [{"name": "/"}]}, "no user would have the tag 'administrator'"),
    ],
)
def test_a_file_that_cannot_be_loaded_ends_the_start(
    tmp_path: Path, document: Any, reason: str
) -> None:
    settings = {"load_definitions": str(loading(tmp_path, document))}
    cluster = LocalCluster(nodes=1, directory=tmp_path / "c", settings=settings)
    with pytest.raises(WarrenError), cluster:
        pytest.fail("the node serves clients")
    assert reason in cluster.log(0) and "load_definitions=" in cluster.log(0)
    assert "Traceback" not in cluster.log(0)
    loading(tmp_path, boot_document())
    with cluster, cluster.connect() as connection:
        assert len(Admin(connection).queues.list()) == 5, "a good file: as if nothing had been"


def test_the_files_of_a_directory_are_one_import(tmp_path: Path) -> None:
    """In the order of their names; a bad one, or two that contradict each other, change nothing."""
    place = tmp_path / "definitions.d"
    place.mkdir()
    whole = boot_document()
    parts = {kind: {kind: entries} for kind, entries in whole.items()}
    for number, kind in enumerate(sorted(parts)):
        (place / f"{number}-{kind}.json").write_text(json.dumps(parts[kind]))
    (place / ".swp").write_bytes(b"not JSON")
    settings = {"definitions": {"local": {"path": str(place)}}}
    cluster = LocalCluster(nodes=1, directory=tmp_path / "c", settings=settings)
    bad = place / "9-last.json"
    for content, reason in (
        (b"[", f"load_definitions={bad}: definitions that are not JSON"),
        (json.dumps({"users": [user_entry("guest", "other")]}).encode(), "user 'guest'"),
    ):
        bad.write_bytes(content)
        with pytest.raises(WarrenError), cluster:
            pytest.fail("the node serves clients")
        assert reason in cluster.log(0)
    bad.unlink()
    with cluster:
        with cluster.connect() as connection:
            assert len(Admin(connection).queues.list()) == 5
            Admin(connection).queues.delete("many-00003")
        (place / "1-queues.json").rename(place / "1-renamed.json")
        cluster.restart(0)
        with cluster.connect() as connection:
            assert len(Admin(connection).queues.list()) == 4, "nothing but a name has changed"
        more = {"queues": [{"name": "more", "vhost": "/"}]}
        (place / "8-more.json").write_text(json.dumps(more))
        cluster.restart(0)
        with cluster.connect() as connection:
            assert len(Admin(connection).queues.list()) == 6, "what was deleted, and the new one"


@pytest.mark.parametrize("content", ["nothing", "a directory"])
def test_a_directory_without_files_ends_the_start(tmp_path: Path, content: str) -> None:
    place = tmp_path / "definitions.d"
    place.mkdir()
    if content == "a directory":
        (place / "inner").mkdir()
    settings = {"load_definitions": str(place)}
    cluster = LocalCluster(nodes=1, directory=tmp_path / "c", settings=settings)
    with pytest.raises(WarrenError), cluster:
        pytest.fail("the node serves clients")
    said = "'inner' is a directory" if content == "a directory" else "the directory has no file"
    assert said in cluster.log(0) and "Traceback" not in cluster.log(0)


def test_a_missing_file_ends_the_start(tmp_path: Path) -> None:
    settings = {"load_definitions": str(tmp_path / "missing.json")}
    cluster = LocalCluster(nodes=1, directory=tmp_path / "c", settings=settings)
    with pytest.raises(WarrenError), cluster:
        pytest.fail("the node serves clients")
    assert "No such file or directory; give an existing file or directory" in cluster.log(0)
