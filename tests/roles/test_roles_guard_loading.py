"""A guard of one's own, found by name; each case in a module of its own."""

import sys

import pytest

from flodl_core.elche.guards import LevelGuard
from flodl_core.errors import ConfigError
from flodl_core.roles.guard_loading import load_guard

GUARD = """
from flodl_core.elche.guards import LevelGuard

class Mine(LevelGuard):
    @property
    def name(self):
        return "mine"

made = Mine(0.2)

def make():
    return Mine(0.3)

number = 3

def needs(argument):
    return made

def leave():
    raise SystemExit(2)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module of a name that no other test has; its directory is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    before, path_before = set(sys.modules), list(sys.path)

    def wrote(name: str, text: str = GUARD):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    yield wrote
    sys.path[:] = path_before
    for name in set(sys.modules) - before:
        if name.startswith("own_guard"):
            del sys.modules[name]


@pytest.mark.parametrize("word", ["level", "growth", "none"])
def test_a_guard_of_ours_needs_no_loading(word):
    assert load_guard(word, source="default") is None


@pytest.mark.parametrize("attribute", ["Mine", "made", "make"])
def test_a_class_a_guard_and_a_function_that_makes_one_all_serve(write, attribute):
    path = write("own_guard_a")
    for text in (f"{path}:{attribute}", f"own_guard_a:{attribute}"):
        guard = load_guard(text, source="--guard")
        assert isinstance(guard, LevelGuard)
        assert guard.name == "mine"


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("absent", "AttributeError"),
        ("number", "TypeError"),
        ("needs", "argument"),
        ("leave", "SystemExit: 2"),
    ],
)
def test_what_is_no_guard_is_refused_by_name(write, attribute, words):
    path = write("own_guard_b")
    with pytest.raises(ConfigError, match=words) as caught:
        load_guard(f"{path}:{attribute}", source="--guard")
    assert caught.value.field == "guard"
    assert "\n" not in caught.value.reason


def test_a_guard_that_lacks_a_part_is_told_which(write):
    path = write(
        "own_guard_c", "class Half:\n    name = 'half'\n    def review(self, report): ...\n"
    )
    with pytest.raises(ConfigError, match="no history, restore"):
        load_guard(f"{path}:Half", source="--guard")


def test_a_module_that_is_not_there_or_does_not_load_is_refused(write):
    broken = write("own_guard_d", "1 / 0\n")
    for text, words in (
        ("own_guard_absent:x", "ModuleNotFoundError"),
        ("missing/guard.py:x", "no file"),
        (f"{broken}:x", "ZeroDivisionError"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_guard(text, source="--guard")


def test_a_file_with_the_name_of_another_module_is_refused(write):
    path = write("json")
    with pytest.raises(ConfigError, match="name of another module"):
        load_guard(f"{path}:Mine", source="--guard")
