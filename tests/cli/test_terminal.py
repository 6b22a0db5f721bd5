"""Whatever an apiserver answers, a terminal only gets characters that are seen: no escape, bell, C1, override of direction or half character."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from fairlead.api.texts import HIDDEN, line, plain, tree
from fairlead.cli import printer
from tests.support.commands import invoke
from tests.support.ui.objects import a_cluster

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxet\u2066\x7f\x00\r"
KEPT = {"apiVersion", "kind", "creationTimestamp", "resourceVersion", "uid", "phase", "type", "status"}
LISTS = a_cluster(2)


def poisoned(value: Any, key: str = "") -> Any:
    """Every text but those that decide what is read gets what a terminal would obey."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    return value + EVIL if isinstance(value, str) and key in {"message", "reason", "name", "queue", "text"} else value


class _Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        plural = self.path.partition("?")[0].rpartition("/")[2]
        found = poisoned(LISTS.get(plural, []))
        for number, each in enumerate(found):
            each["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        refused = plural == "flavors"
        named = self.path.partition("?")[0].rpartition("/")
        one = [raw for raw in LISTS.get(named[0].rpartition("/")[2], []) if raw["metadata"]["name"] == named[2]]
        body: dict[str, Any] = {"kind": "Status", "message": f"no{EVIL}", "reason": "Forbidden", "code": 403} if refused else {
            "kind": "List", "metadata": {"resourceVersion": "1"}, "items": found,
        }  # fmt: skip
        body = {**poisoned(one[0])} if one else body
        text = json.dumps(body).encode()
        self.send_response(403 if refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path_factory.mktemp("hostile") / "config"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    yield path
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "words",
    [
        ["gangs", "-A"], ["gangs", "-A", "-o", "json"], ["gangs", "-A", "-o", "yaml"], ["queues"], ["queues", "-o", "yaml"],
        ["explain", "wait-00000", "-n", "team-0"], ["explain", "queue/all"], ["device", "list"], ["repair", "--list"],
        ["doctor"], ["tenant", "list"], ["cost", "--ledger", "absent"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_hostile_apiserver_steers_no_terminal(words: list[str], kubeconfig: Path) -> None:
    done = invoke([*words, "--kubeconfig", str(kubeconfig)] if words[0] != "cost" else words, color=True)
    ours = done.output.replace("\x1b[1m", "").replace("\x1b[0m", "")
    for colour in range(30, 38):
        ours = ours.replace(f"\x1b[{colour}m", "")
    assert not HIDDEN.search(ours), HIDDEN.findall(ours)
    assert done.output.strip()


def test_tables_and_texts_of_rich_lose_them_too(capsys) -> None:
    table = Table()
    table.add_column(f"title{EVIL}")
    table.add_row(f"cell{EVIL}")
    printer.console(force_terminal=False).print(table, f"text{EVIL}")
    printer.say(f"said{EVIL}", end="\n")
    printer.fail(ValueError(f"raised{EVIL}"))
    out, err = capsys.readouterr()
    assert "title" in out
    assert "raised" in err
    assert not HIDDEN.search(out + err)


def test_texts_keep_what_is_seen() -> None:
    assert plain("Zeile\n\tüber 界 🚀 a\r\n") == "Zeile\n\tüber 界 🚀 a\r\n"
    assert plain("a\ud800b\u202ec\x85") == "a�b�c�"
    assert line("a\r\nb\tc\x1b") == "a b c�"
    value = {"a": ["b", 1, None], "c": {"d": "e"}}
    assert tree(value) is value
    assert tree({"a": ["b\x07"], "c": 1}) == {"a": ["b�"], "c": 1}
