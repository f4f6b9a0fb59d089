"""Runs at an address are shown as those of a folder are."""

import fsspec
import pytest

from netvitals.capture import Measurement
from netvitals.report.live.remote import Mirror
from netvitals.report.live.run_index import Shelf
from netvitals.runs import RunWriter


def put(tmp_path, name, steps, folder="memory://bucket/runs"):
    with RunWriter(tmp_path / name, existing="resume") as writer:
        writer.write([Measurement(s, "loss", "model", "loss", 1.0) for s in steps])
    there, path = fsspec.core.url_to_fs(f"{folder}/{name}/run.sqlite")
    there.makedirs(path.rpartition("/")[0], exist_ok=True)
    there.put_file(str(writer.path), path)


def test_runs_at_an_address_are_listed_and_followed(tmp_path):
    put(tmp_path, "a", range(3))
    shelf = Shelf(["memory://bucket/runs"])
    assert list(shelf.names()) == ["a"] and shelf.run("a").numbers.summary.last_step == 2
    put(tmp_path, "a", range(3, 8))
    put(tmp_path, "b", range(2))
    for mirror in shelf._mirrors.values():
        mirror._looked = -1e9
    assert set(shelf.names()) == {"a", "b"} and shelf.run("a").numbers.summary.last_step == 7
    there, path = fsspec.core.url_to_fs("memory://bucket/runs/b/run.sqlite")
    there.rm(path)
    for mirror in shelf._mirrors.values():
        mirror._looked = -1e9
    assert set(shelf.names()) == {"a"}


@pytest.mark.parametrize("address", ["memory://nowhere", "nothing://x"])
def test_a_place_that_is_not_there_is_said(address):
    with pytest.raises((FileNotFoundError, ValueError), match=address):
        Mirror(address)
