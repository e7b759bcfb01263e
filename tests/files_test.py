import os
import threading

import numpy as np
import pytest
import torch

from sbi_colt import CoLT, DiagnosticReport, Draws
from sbi_colt.files import atomic_write, save_file


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail():
        with atomic_write(path) as file:
            file.write("half of the new")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize("kind", ["file", "draws"])
def test_a_full_disk_does_not_destroy_what_was_saved(tmp_path, monkeypatch, kind):
    draws = Draws(torch.rand(5, 2), torch.rand(5, 2), torch.rand(3, 5, 2))
    path = tmp_path / "saved.npz"

    def save():
        if kind == "draws":
            draws.save(path)
        else:
            save_file(path, {"format": "a test"}, {"zeros": torch.zeros(3)})

    save()
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space left"):
        save()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["saved.npz"]


def test_writers_at_the_same_time_leave_one_whole_file(tmp_path):
    path = tmp_path / "shared"
    together = threading.Barrier(4)

    def write(letter):
        with atomic_write(path) as file:
            together.wait()
            file.write(letter * 10_000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in {letter * 10_000 for letter in "abcd"}
    assert os.listdir(tmp_path) == ["shared"]


def test_an_existing_file_can_be_protected(tmp_path):
    path = tmp_path / "header.json"
    with atomic_write(path, overwrite=False) as file:
        file.write("first")

    def write_again():
        with atomic_write(path, overwrite=False) as file:
            file.write("second")

    with pytest.raises(FileExistsError):
        write_again()
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["header.json"]


def test_permissions_are_those_of_other_new_files(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_write(tmp_path / "atomic") as file:
        file.write("")
    modes = {(tmp_path / name).stat().st_mode for name in ("plain", "atomic")}
    assert len(modes) == 1


@pytest.mark.parametrize("load", [CoLT.load, DiagnosticReport.load])
@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("weights"),
        lambda path: torch.save({"weights": torch.zeros(3)}, path),
        lambda path: save_file(path, {"format": "apples"}, {}),
    ],
    ids=["text", "torch", "apples"],
)
def test_a_file_of_another_kind_is_named(tmp_path, load, write):
    write(tmp_path / "a.npz")
    kind = f"sbi_colt.{load.__self__.__name__}"
    with pytest.raises(ValueError, match=f"a.npz: expected a file of {kind}"):
        load(tmp_path / "a.npz")


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def no_links(*paths):
        raise PermissionError("operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with atomic_write(tmp_path / "a.txt", overwrite=False) as file:
        file.write("first")
    with (
        pytest.raises(FileExistsError),
        atomic_write(tmp_path / "a.txt", overwrite=False) as file,
    ):
        file.write("second")
    assert (tmp_path / "a.txt").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
