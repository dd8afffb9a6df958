"""What a host says that is none of the run's."""

from flodl_core.messages.join import JoinHello


def stranger(host: str) -> JoinHello:
    """A Hello that any run refuses: its data set is another one."""
    return JoinHello(
        host=host,
        local_devices=("cpu:0",),
        gpus=(),
        torch_variant="",
        n_samples=3,
        dataset_sig="none of ours",
    )
