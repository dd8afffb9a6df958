"""The house rules that a tool does not check by itself."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for package in ("flodl_core", "flodl_console") for path in (ROOT / package).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXTS = [
    path
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/run", "docs/**/*.md")
    for path in ROOT.glob(pattern)
]


def rel(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_modules(path: Path) -> list[str]:
    """The modules that a file names in its imports, wherever they stand."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return found


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=rel)
def test_every_module_says_what_it_is(path: Path) -> None:
    doc = ast.get_docstring(tree(path))
    assert doc
    assert len(doc) > 15


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    long = {rel(p): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_only_the_clock_module_reads_a_clock() -> None:
    calls = re.compile(
        r"\btime\.(time|monotonic|perf_counter|time_ns|monotonic_ns|perf_counter_ns)\("
    )
    allowed = {"flodl_core/net/clock.py"}
    found = [rel(p) for p in SOURCES if rel(p) not in allowed and calls.search(p.read_text())]
    assert not found


def test_only_config_load_and_children_read_the_environment() -> None:
    allowed = {"flodl_core/config/load.py", "flodl_core/net/children.py"}
    found = [
        rel(p)
        for p in SOURCES
        if rel(p) not in allowed and re.search(r"\bos\.(environ|getenv|putenv)\b", p.read_text())
    ]
    assert not found


def test_nothing_is_pickled() -> None:
    names = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    found = [
        f"{rel(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and names
        & {
            part
            for name in [
                *(alias.name for alias in node.names),
                getattr(node, "module", None) or "",
            ]
            for part in name.split(".")
        }
    ]
    assert not found


def test_no_comment_tells_history_or_plans() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK|(?i:legacy|deprecated|for now|later version))\b")
    found = [
        f"{rel(path)}:{i}: {line.strip()}"
        for path in SOURCES
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not found


def test_no_vague_module_names() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
    assert not [rel(p) for p in SOURCES if p.stem in vague]


def test_drawings_know_no_document_object_model() -> None:
    allowed = re.compile(r"textual\.(strip|geometry|color)$")
    found = [
        f"{rel(path)}: {name}"
        for path in SOURCES
        if "flodl_console/renderables" in rel(path)
        for name in imported_modules(path)
        if name.split(".")[0] == "textual" and not allowed.match(name)
    ]
    assert not found


def test_widgets_import_neither_the_app_nor_what_starts_it() -> None:
    found = [
        f"{rel(path)}: {name}"
        for path in SOURCES
        if "flodl_console/widgets" in rel(path)
        for name in imported_modules(path)
        if name in {"flodl_console.app", "flodl_console.launch", "flodl_console.attach"}
    ]
    assert not found


def test_no_two_public_classes_of_a_package_share_a_name() -> None:
    seen: dict[tuple[str, str], str] = {}
    twice = []
    for path in SOURCES:
        package = rel(path).partition("/")[0]
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if (package, node.name) in seen:
                    twice.append(f"{node.name}: {seen[package, node.name]} and {rel(path)}")
                seen[package, node.name] = rel(path)
    assert not twice


def test_tests_do_not_sleep_on_a_real_clock_nor_patch() -> None:
    words = re.compile(r"\btime\.sleep\(|unittest\.mock|mock\.patch|monkeypatch\.setattr")
    me = Path(__file__).resolve()
    assert not [rel(p) for p in TESTS if p != me and words.search(p.read_text())]


def test_the_repository_names_no_path_of_a_machine() -> None:
    pattern = re.compile(r"(?<![\w./-])/(work|farm|root|home/\w+)/")
    me = Path(__file__).resolve()
    found = [
        rel(p)
        for p in [*SOURCES, *TESTS, *TEXTS]
        if p != me and pattern.search(p.read_text(errors="replace"))
    ]
    assert not found


@pytest.mark.slow
def test_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "flodl_core",
        "flodl_core.cli.main",
        "flodl_core.roles.launcher",
        "flodl_core.roles.agent",
        "flodl_core.roles.relay",
        "flodl_core.simulation",
        "flodl_console.view.records",
    ],
)
@pytest.mark.slow
def test_roles_without_a_device_load_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
