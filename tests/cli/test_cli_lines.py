"""The last gate before a terminal: nothing that is printed can steer it."""

import contextlib
import io
import json

from hypothesis import example, given
from hypothesis import strategies as st

from flodl_core.cli.lines import write_error_line, write_json, write_line

STEERING = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2028"} - {"\n"}
TEXTS = st.text(st.characters() | st.sampled_from(sorted(STEERING)), max_size=40)


@given(TEXTS)
@example("a\x1b]0;title\x07b\x9bc")
def test_no_line_holds_a_character_that_steers_a_terminal(text):
    out, err = told(lambda: (write_line(text), write_error_line(text)))
    assert not STEERING.intersection(out + err)
    assert out == err


@given(TEXTS, st.sampled_from([None, 2]))
def test_json_stays_json_and_says_the_same(text, indent):
    (out, _) = told(
        lambda: write_json(json.dumps({"text": text, text: 1}, indent=indent, ensure_ascii=False))
    )
    assert not STEERING.intersection(out)
    assert json.loads(out) == {"text": text, text: 1}


@given(TEXTS, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8", "UTF8"]))
@example("caf\xe9 \U0001f600 \u0416", "latin-1")
def test_json_is_json_whatever_the_encoding_of_the_stream(text, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    written = json.dumps({"text": text}, ensure_ascii=False)
    with contextlib.redirect_stdout(stream):
        write_json(written)
    out = stream.detach().getvalue().decode("utf-8")
    assert json.loads(out) == {"text": text}
    if encoding.lower().startswith("utf") and text.isprintable():
        assert out == f"{written}\n", "nothing is escaped that need not be"


def told(write):
    """Return what is written to standard output and to standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        write()
    return out.getvalue(), err.getvalue()
