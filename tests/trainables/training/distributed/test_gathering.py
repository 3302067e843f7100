"""Every loss has the same value and gradients when two processes share the batches."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from support.two_ranks import in_one_process, in_two, join, names
from torch import nn

from trainables.losses.base import Loss
from trainables.mistakes import Mistakes
from trainables.training.distributed.batch import shares, take_common_statistics

Results = dict[str, tuple[list[float], nn.Module, Loss]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """Return the results of every loss on rank 0, which is this process."""
    file = str(tmp_path_factory.mktemp("ranks") / "store")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-m", "support.two_ranks", file], env=environment)
    try:
        join(0, file)
        yield {name: in_two(0, name) for name in names()}
        dist.destroy_process_group()
        assert other.wait(60) == 0
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("name", names())
def test_two_processes_learn_what_one_does(shared: Results, name: str) -> None:
    values, network, loss = shared[name]
    expected_values, expected_network, expected_loss = in_one_process(name)
    assert values == pytest.approx(expected_values, abs=1e-12)
    for kind, module, expected in (("network", network, expected_network), ("loss", loss, expected_loss)):
        for (key, parameter), other in zip(module.named_parameters(), expected.parameters(), strict=True):
            assert (parameter.grad is None) == (other.grad is None) == key.startswith("unused"), f"{kind} {key}"
            if other.grad is not None:
                torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-9, atol=1e-12, msg=f"{kind} {key}")
    assert any(
        float(parameter.grad.abs().max()) > 1e-6 for parameter in network.parameters() if parameter.grad is not None
    )
    statistics = {key: value for key, value in network.state_dict().items() if "running" in key}
    assert len(statistics) == 2
    for key, value in statistics.items():
        torch.testing.assert_close(value, expected_network.state_dict()[key], rtol=1e-10, atol=1e-12)
    assert (loss.used is None) == (expected_loss.used is None)
    if loss.used is not None and expected_loss.used is not None:
        assert int(loss.used.count) == int(expected_loss.used.count)


@pytest.mark.parametrize(("batch", "ranks"), [(55, 2), (56, 2), (11, 4), (4, 4), (120, 7)])
def test_a_batch_is_dealt_out_evenly_and_in_order(batch: int, ranks: int) -> None:
    rows = [list(range(batch))[share] for share in shares(batch, ranks)]
    assert [image for row in rows for image in row] == list(range(batch))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_batch_normalisation_of_another_kind_is_refused() -> None:
    class Own(nn.BatchNorm2d):
        pass

    network = nn.Sequential(nn.Conv2d(3, 4, 1), Own(4))
    with pytest.raises(Mistakes, match=r"by Own, whose statistics cannot .* set model\.freeze_bn: true"):
        take_common_statistics(network, torch.device("cpu"))


def test_what_takes_common_statistics_keeps_its_parameters_and_names() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, eps=1e-3, momentum=None))).eval()
    parameters, names = list(network.parameters()), list(network.state_dict())
    images = torch.rand(2, 3, 4, 4)
    before = network(images)
    take_common_statistics(network, torch.device("cpu"))
    assert [id(parameter) for parameter in network.parameters()] == [id(parameter) for parameter in parameters]
    assert list(network.state_dict()) == names
    assert torch.equal(network(images), before)
    assert (network[1][0].eps, network[1][0].momentum) == (1e-3, None)
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    take_common_statistics(network, torch.device("cuda"))
    assert type(network[1]) is nn.SyncBatchNorm
