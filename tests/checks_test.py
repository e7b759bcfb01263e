import pytest
import torch

from sbi_colt.checks import checked_device


def test_a_device_of_this_machine_is_returned():
    assert checked_device("cpu") == checked_device(torch.device("cpu"))


def test_what_is_no_device_is_named():
    with pytest.raises(ValueError, match="device: expected a device such as"):
        checked_device("gpu")


def test_cuda_without_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="got 'cuda' but this machine has no CUDA"):
        checked_device("cuda")


def test_a_cuda_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert checked_device("cuda:0").index == 0
    with pytest.raises(ValueError, match="'cuda:1' but it has 1 CUDA device"):
        checked_device("cuda:1")
