"""In a real Jupyter kernel: a cell may be run again, and shows what it shows anywhere else."""

import json
import subprocess
import sys

import nbformat
import pytest

BEGIN = """
import torch
import netvitals as nv

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
WATCH = """
watch = nv.watch(model, optimizer, run="runs/a", every=1)
for _ in range(3):
    loss = model(torch.randn(16, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    watch.step(loss)
"""
TWICE = "first = nv.watch(model, optimizer)\nsecond = nv.watch(model, optimizer)"
CLOSED = """
watch.close()
print([(run, nv.open_run(f"runs/{run}").status, len(nv.open_run(f"runs/{run}").steps)) for run in ("a", "a-2")])
"""


def executed(folder, *cells):
    """What the cells of a notebook write, executed by ``jupyter nbconvert`` in ``folder``."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(book, folder / "book.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "book.ipynb"]
    done = subprocess.run([*command, "--output", "out.ipynb"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    book = json.loads((folder / "out.ipynb").read_text())
    return ["".join("".join(o.get("text", o.get("evalue", ""))) for o in c["outputs"]) for c in book["cells"]]


@pytest.mark.timeout(600)
def test_a_cell_that_is_run_again_takes_the_old_watch_over(tmp_path):
    said = executed(tmp_path, BEGIN, WATCH, WATCH, CLOSED, TWICE)
    assert said[1] == ""
    assert "an earlier watch of this model was not closed" in said[2] and "runs/a-2" in said[2]
    assert "[('a', 'never closed', 3), ('a-2', 'finished', 3)]" in said[3]
    assert "this model is already watched" in said[4], "two watches in one cell are a mistake"
