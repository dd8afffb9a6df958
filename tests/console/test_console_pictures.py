"""Pictures: shapes for what fonts disagree about, the digest in a PNG, nothing stale."""

import re
import struct

import pytest

from flodl_console.demo.scenarios import SCENARIOS
from flodl_console.screenshots import DIRECTORY, SHOTS, take, write
from flodl_console.svg_pictures import digest_in, digest_of, drawn_svg, png_of

SVG = """<svg class="rich-terminal" viewBox="0 0 122 24.4" xmlns="http://www.w3.org/2000/svg">
<style>.terminal-123456-matrix {{ font-family: Fira Code, monospace; }}</style>
<text class="terminal-123456-r1" x="12.2" y="18.5" textLength="61" clip-path="url(#a)">{text}</text>
</svg>
"""


def drawn(text: str) -> str:
    return drawn_svg(SVG.format(text=text))


def words(svg: str) -> list[tuple[float, str]]:
    found = re.findall(r'<text [^>]*x="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    return [(float(x), text) for x, text in found]


def paths(svg: str) -> list[str]:
    return re.findall(r'<path class="[^"]*" d="([^"]*)"', svg)


def test_each_word_stands_in_its_own_place():
    assert words(drawn("ab&#160;&#160;c")) == [(12.2, "ab"), (61.0, "c")]


def test_a_wide_character_takes_two_cells():
    assert words(drawn("日&#160;c")) == [(12.2, "日"), (48.8, "c")]


def test_markup_in_a_word_stays_text():
    assert words(drawn("a&lt;b&gt;&amp;")) == [(12.2, "a&lt;b&gt;&amp;")]


def test_names_of_a_picture_are_the_same_each_time():
    assert "123456" not in drawn("x")
    assert drawn("x") == drawn_svg(SVG.format(text="x").replace("123456", "9"))


@pytest.mark.parametrize(
    ("text", "boxes"),
    [("⠁", 1), ("⣿", 8), ("█", 1), ("▌", 1), ("▁", 1), ("─", 1), ("┼", 2), ("┐", 2), ("░", 8)],
)
def test_dots_blocks_and_lines_become_shapes(text, boxes):
    svg = drawn(text)
    assert words(svg) == []
    assert paths(svg)[0].count("M") == boxes


def test_an_empty_braille_cell_is_nothing():
    assert words(drawn("⠀")) == []
    assert paths(drawn("⠀")) == []


def test_half_a_block_fills_half_a_cell_from_below():
    assert paths(drawn("▄")) == ["M12.2,12.2h12.2v12.2h-12.2z"]


def test_shapes_split_a_text_into_words():
    svg = drawn("a█b")
    assert words(svg) == [(12.2, "a"), (36.6, "b")]
    assert paths(svg) == ["M24.4,0.0h12.2v24.4h-12.2z"]


def test_a_png_knows_which_drawing_it_was_made_from():
    pytest.importorskip("cairosvg")
    svg = drawn("hello")
    png = png_of(svg)
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (122, 24)
    assert digest_in(png) == digest_of(svg)
    assert digest_in(png[:33]) is None


def test_pictures_have_names_of_their_own_and_known_scenarios():
    assert len({shot.name for shot in SHOTS}) == len(SHOTS)
    assert {shot.scenario for shot in SHOTS} <= set(SCENARIOS)


@pytest.mark.slow
def test_pictures_are_written_once_and_only_where_they_changed(tmp_path):
    pytest.importorskip("cairosvg")
    few = SHOTS[1:2]
    assert {path.suffix for path in write(tmp_path, few)} == {".svg", ".png"}
    assert write(tmp_path, few) == []
    (tmp_path / f"{few[0].name}.svg").write_text("old", encoding="utf-8")
    assert [path.suffix for path in write(tmp_path, few)] == [".svg"]


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
async def test_no_picture_is_stale(shot, anyio_backend):
    svg = await take(shot)
    is_same = (DIRECTORY / f"{shot.name}.svg").read_text(encoding="utf-8") == svg
    assert is_same, f"{shot.name} is stale: run `python -m flodl_console.screenshots`"
    assert digest_in((DIRECTORY / f"{shot.name}.png").read_bytes()) == digest_of(svg)


def test_no_picture_is_left_from_before():
    kept = {path.stem for path in DIRECTORY.iterdir()}
    assert kept == {shot.name for shot in SHOTS}
