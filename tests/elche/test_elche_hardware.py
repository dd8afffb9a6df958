"""What a host says of a GPU, made and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.election import DeviceFacts
from flodl_core.elche.hardware import describe_gpu, read_gpu_untrusted


def test_the_line_of_a_gpu_is_for_people_too():
    facts = DeviceFacts(vendor="nvidia", generation=9, memory_gb=139.8)
    assert describe_gpu("NVIDIA H200", facts) == "NVIDIA H200 (nvidia, generation 9, 140 GB)"


@given(
    st.text(max_size=30).filter(lambda name: "\n" not in name and len(name.splitlines()) < 2),
    st.sampled_from(["nvidia", "amd"]),
    st.integers(0, 9999),
    st.integers(0, 999_999),
)
def test_what_was_said_is_read_back(name, vendor, generation, memory_gb):
    facts = DeviceFacts(vendor=vendor, generation=generation, memory_gb=float(memory_gb))
    assert read_gpu_untrusted(describe_gpu(name, facts)) == facts


@pytest.mark.parametrize("text", ["", "NVIDIA H200", "x (nvidia, generation 9)", "a (b, c, d)"])
def test_other_words_say_nothing(text):
    assert read_gpu_untrusted(text) is None
