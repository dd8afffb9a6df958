import subprocess
import sys
import textwrap

import pytest
import torch
from recipe_runs import score, train

from flodl_core.errors import JobError
from flodl_core.recipes import digits

pytest.importorskip("sklearn")


def test_every_image_is_on_one_side_of_the_split():
    job = digits.job()
    assert len(job.dataset()) == 1437
    assert len(job.eval_dataset()) == 360
    images, labels = digits.load_images()
    assert images.shape == (1797, 1, 8, 8)
    assert (images.min(), images.max()) == (0, 1)
    assert sorted(set(labels.tolist())) == list(range(10))


def test_the_net_has_float_buffers_and_integer_counters():
    kinds = {buffer.dtype for buffer in digits.make_model(4).buffers()}
    assert kinds == {torch.float32, torch.int64}


@pytest.mark.slow
def test_two_ranks_recognise_digits_after_two_passes():
    job = digits.job()
    contexts, _ = train(job, ranks=2, windows=44)
    assert score(job, contexts[0].model) > 0.8
    assert score(job, contexts[1].model) == score(job, contexts[0].model)


def test_an_option_that_cannot_be_used_is_named():
    with pytest.raises(JobError, match="digits: channels is 0"):
        digits.job(channels=0)


@pytest.mark.slow
@pytest.mark.processes
def test_a_missing_scikit_learn_is_named_with_the_extra_to_install():
    code = textwrap.dedent("""
        import sys
        sys.modules["sklearn"] = None
        from flodl_core.errors import JobError
        from flodl_core.recipes import digits
        try:
            digits.job()
        except JobError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "needs scikit-learn" in done.stdout
    assert 'pip install "flodl[demo]"' in done.stdout
