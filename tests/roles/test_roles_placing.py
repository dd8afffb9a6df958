"""What is refused of the hosts to be placed before any of them is reached."""

import platform

import pytest

from flodl_core.config.load import load_run
from flodl_core.errors import ConfigError
from flodl_core.roles.placing import refuse_own_label


def loaded(tmp_path, *labels, hosts=1):
    items = "".join(f'[[workers]]\nhost = "{label}"\n' for label in labels)
    (tmp_path / "flodl.toml").write_text(items)
    return load_run({"hosts": hosts}, environ={}, directory=tmp_path)


def test_a_worker_with_the_label_of_the_launchers_own_host_is_refused_by_its_line(tmp_path):
    own = platform.node()
    refuse_own_label(loaded(tmp_path, "blue", f"{own}-1"))
    with pytest.raises(ConfigError, match="label of this machine") as caught:
        refuse_own_label(loaded(tmp_path, "blue", own))
    assert "flodl.toml:4" in str(caught.value)
    assert "ssh =" in caught.value.fix
    with pytest.raises(ConfigError, match="label of this machine"):
        refuse_own_label(loaded(tmp_path, "blue", f"{own}-1", hosts=2))
