"""Names that peers choose: none leaves its directory, its line, or its place on a terminal."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flodl_core.ids import Mode, RunId
from flodl_core.membership.admission import Admitted, Refused, review_admission
from flodl_core.membership.roster import Expected
from flodl_core.messages.join import JoinHello
from flodl_core.roles.history import Happening, RunHistory
from flodl_core.telemetry.journal import Journal, node_file, read_journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.recorded_form import NodeNames
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.records import EventKind
from flodl_core.telemetry.run_directory import RunDirectory

EXPECTED = Expected(mode=Mode.CPU_SYNC, run_id=RunId("0123456789abcdef"))
TOKEN = "5e5a" * 8

EVIL = (
    "..", ".", "/", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "", " ", "-rf", "~",
    "a\x00b", "con\n2026-01-01T00:00:00Z ERROR launcher/launcher root_failed", "red\r\nblue",
    "\x1b[2J\x1b[31mowned", "\x1b]0;title\x07", "\x9b31m", "a\u202eb", "a\u2066b", "\ud800",
    "\u2028", "x" * 100_000, "$(reboot)", "`reboot`", "%s%n", "{0.__class__}", "CON", "nul.txt",
)  # fmt: skip
NAMES = st.sampled_from(EVIL) | st.text(max_size=60)
USES_A_FOLDER = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def hello(**given_: object) -> JoinHello:
    fields: dict[str, object] = {
        "host": "red",
        "local_devices": ("cpu:0",),
        "gpus": (),
        "torch_variant": "2.11.0+cpu",
        "n_samples": 3,
        "dataset_sig": "da" * 32,
    }
    return JoinHello(**(fields | given_))  # type: ignore[arg-type]


def is_harmless(text: str) -> bool:
    """Whether a text stays on its line and steers no terminal."""
    return text.isprintable() and not set(text) & set("\u202e\u2066\u2028")


@given(NAMES)
@settings(max_examples=200, deadline=None)
def test_a_host_is_admitted_by_a_short_name_that_prints_and_refused_harmlessly_else(name) -> None:
    verdict = review_admission(hello(host=name), (), EXPECTED)
    if name.strip() and len(name) <= 255 and name.isprintable():
        assert verdict == Admitted()
    else:
        assert isinstance(verdict, Refused)
        assert is_harmless(verdict.reason)
        assert len(verdict.reason) < 500


@pytest.mark.parametrize(
    "odd",
    [
        {"local_devices": ("cpu:0\x1b[2J",)},
        {"gpus": ("A\nB",)},
        {"gpus": ("g" * 201,)},
        {"gpus": ("g",) * 257},
        {"torch_variant": "2.11\u2028"},
        {"torch_variant": "t" * 1_000_000},
        {"nccl_version": "2.27\r"},
    ],
)
def test_a_host_that_describes_itself_oddly_is_refused_by_name(odd) -> None:
    verdict = review_admission(hello(**odd), (), EXPECTED)
    assert isinstance(verdict, Refused)
    assert "describes itself" in verdict.reason
    assert is_harmless(verdict.reason)
    assert len(verdict.reason) < 2_000


@given(NAMES)
@USES_A_FOLDER
def test_no_name_leaves_the_directory_of_its_run(tmp_path, name) -> None:
    directory = RunDirectory.open(tmp_path / "runs", name, RunId("0123456789abcdef"))
    assert directory.path.parent == tmp_path / "runs"
    for path in (
        directory.log_path(name),
        directory.log_path(f"{name}-agent"),
        directory.output_path(name),
    ):
        assert path.parent == directory.path / "logs"
        path.write_text("")
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


@given(st.lists(NAMES, min_size=1, max_size=5))
@USES_A_FOLDER
def test_no_path_of_a_record_leaves_the_tree_and_each_host_has_its_own(tmp_path, names) -> None:
    root, nodes = tmp_path / "records", NodeNames()
    journal = Journal(root, utc_iso=lambda: "2026-01-01T00:00:00Z")
    for name in names:
        journal.append(nodes.host(name), {"said": name})
        assert node_file(root, name).is_relative_to(root)
        assert ".." not in node_file(root, name).relative_to(root).parts
    journal.close()
    assert len({nodes.host(name) for name in names}) == len(set(names))
    assert {path.name for path in tmp_path.iterdir()} == {"records"}
    kept = [row["said"] for row in read_journal(root) if row["said"] in names]
    assert len(kept) >= len(set(names)) - sum("\ud800" in name for name in names)


@given(NAMES, NAMES)
@USES_A_FOLDER
def test_no_text_of_a_peer_makes_a_line_of_the_log_or_steers_its_reader(
    tmp_path, name, value
) -> None:
    path = tmp_path / "launcher.log"
    path.unlink(missing_ok=True)
    log = ProcessLog(path, host=name, process="launcher", utc_iso=lambda: "2026-01-01T00:00:00Z")
    log.warning("host_lost", host=name, reason=value, hosts=(name, value))
    log.exception("failed", RuntimeError(value))  # noqa: LOG004 - a log of ours, not Python's
    log.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("2026-01-01T00:00:00Z ") for line in lines)
    assert [line.split()[1] for line in lines].count("WARNING") == 1
    assert all(is_harmless(line) for line in lines)


@given(NAMES, NAMES)
@USES_A_FOLDER
def test_no_text_of_a_peer_leaves_its_place_in_an_event_or_holds_the_token(
    tmp_path, name, text
) -> None:
    journal = Journal(tmp_path / "records", utc_iso=lambda: "2026-01-01T00:00:00Z")
    recorder = RunRecorder(journal)
    history = RunHistory(recorder, secrets=(TOKEN,))
    seq = history.tell(
        Happening(
            kind=EventKind.ADMISSION, name="host_joined", host=name, text=f"{text} {TOKEN.upper()}"
        )
    )
    recorder.close()
    page = history.events.page(seq - 1)
    shown = json.dumps(json.loads(page), ensure_ascii=True)
    written = "".join(path.read_text() for path in Path(tmp_path).rglob("*.jsonl"))
    for kept in (shown, written):
        assert TOKEN.lower() not in kept.lower()
        assert is_harmless(json.loads(shown)["records"][0]["text"])
