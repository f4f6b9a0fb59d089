"""What a preflight gives: a printout, plain data, a page, JUnit, an exception, exit codes, callbacks, a watch."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import netvitals as nv
from netvitals.cli import app
from netvitals.preflights import PreflightFailed, assert_preflight


def made(softmax=False):
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), *[nn.Softmax(1)] * softmax)
    loader = [(x[i : i + 32], x[i : i + 32, :4].argmax(1)) for i in range(0, 256, 32)]
    return model, "ce", loader, torch.optim.Adam(model.parameters(), lr=3e-3)


@pytest.fixture(scope="module")
def sick():
    return nv.preflight(*made(softmax=True))


@pytest.fixture(scope="module")
def sound():
    return nv.preflight(*made())


def test_the_printout_has_the_counts_and_failures_first(sick):
    lines = str(sick).splitlines()
    counts = [int(n) for n in re.findall(r"(\d+) (?:failed|passed|not)", lines[0])]
    assert counts == list(sick.counts.values()) and sum(counts) == len(sick.checks)
    assert lines[2].startswith("FAILED  double softmax: ")
    assert any(line.strip().startswith("fix: Remove the softmax") for line in lines)
    assert sick.checks[0].name == "double softmax"


def test_every_check_says_what_it_asks_costs_and_why_it_has_no_answer(sick):
    for check in sick:
        assert check.question.endswith("?")
        if check.status == "failed":
            assert check.measured and check.fix and check.healthy and check.cost
        elif check.status != "passed":
            assert check.why
    assert len({check.name for check in sick}) == len(sick.checks)


def test_a_failure_raises_and_none_does_not(sick, sound):
    with pytest.raises(PreflightFailed, match="double softmax") as caught:
        sick.raise_for_failures()
    assert caught.value.result is sick
    assert sound.raise_for_failures() is sound


def test_plain_data(sick):
    plain = json.loads(json.dumps(sick.to_dict()))
    assert plain["checks"][0]["name"] == "double softmax" and plain["rates"]["yours"] == 3e-3
    with pytest.raises(KeyError, match="there is no check 'nonsense'"):
        sick["nonsense"]


def test_the_page_opens_offline_and_shows_everything(sick, tmp_path):
    text = sick.to_html(tmp_path).read_text(encoding="utf-8")
    assert "http://" not in text.replace("http://www.w3.org", "") and "<svg" in text
    for name, count in sick.counts.items():
        assert re.search(rf">{name}<i.*?value\">{count}<", text)
    assert text.index("double softmax") < text.index("update lost")
    assert "your rate" in text and "Mean and standard deviation" in text and 'data-theme="dark"' in text
    assert "double softmax" in sick._repr_html_() and "<svg" in sick._repr_html_()


def test_junit(sick):
    suite = ET.fromstring(sick.to_junit())
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) == len(sick.checks)
    assert [c.get("name") for c in cases if c.find("failure") is not None] == [c.name for c in sick.failed]
    assert int(suite.get("skipped")) == sum(c.find("skipped") is not None for c in cases)


def test_the_pytest_helper():
    assert assert_preflight(*made()).counts["failed"] == 0
    with pytest.raises(AssertionError, match="double softmax"):
        assert_preflight(*made(softmax=True))
    allowed = ["double softmax", "memorises one batch", "learning rate too low"]
    assert assert_preflight(*made(softmax=True), but=allowed)["double softmax"].status == "failed"
    with pytest.raises(ValueError, match="there is no check doubled"):
        assert_preflight(*made(), but=["doubled"])


# ---------------------------------------------------------------- the command


@pytest.fixture
def factories(tmp_path, monkeypatch):
    (tmp_path / "mine_to_check.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def made(*last):\n"
        "    torch.manual_seed(0)\n"
        "    x = torch.randn(128, 8)\n"
        "    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), *last)\n"
        "    return model, 'ce', [(x, x[:, :4].argmax(1))], torch.optim.Adam(model.parameters(), lr=3e-3)\n"
        "def sound(): return made()\n"
        "def sick(): return made(nn.Softmax(1))\n"
        "def three(): return made()[:3]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["preflight", *arguments])


def test_exit_codes(factories):
    assert call("mine_to_check:sound").exit_code == 0
    found = call("mine_to_check:sick", "--junit", "j.xml", "--html", "page.html")
    assert found.exit_code == 1 and "FAILED  double softmax" in found.output
    assert ET.parse("j.xml").getroot().get("failures") != "0"
    assert (factories / "page.html").is_file()
    with pytest.raises(ValueError, match=r"must return 4 values, model, loss_fn, loader and optimizer; it returned 3"):
        CliRunner().invoke(app, ["preflight", "mine_to_check:three"], catch_exceptions=False)


def test_what_cannot_run_has_exit_code_2(factories, capsys):
    from netvitals.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["preflight", "mine_to_check:three"])
    assert ended.value.code == 2 and "must return 4 values" in capsys.readouterr().err


def test_json(factories):
    found = call("mine_to_check:sick", "--json")
    assert found.exit_code == 1 and json.loads(found.output)["checks"][0]["name"] == "double softmax"


# ---------------------------------------------------------------- inside other loops


def test_a_watch_that_looks_before_it_begins():
    model, loss, loader, optimizer = made(softmax=True)
    with pytest.warns(RuntimeWarning, match="failed checks before training: double softmax"):
        watch = nv.watch(model, optimizer, preflight=(loss, loader))
    watch.close()
    assert watch.preflight["double softmax"].status == "failed"
    with nv.watch(*made()[::3]) as watch:
        assert watch.preflight is None


def test_training_after_a_preflight_is_bit_identical():
    ends = []
    for asked in (False, True):
        model, loss, loader, optimizer = made()
        with nv.watch(model, optimizer, preflight=(loss, loader) if asked else None):
            for x, y in loader:
                x = x + 0.01 * torch.randn_like(x)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        ends.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends))


@pytest.mark.parametrize("stop", [True, False])
def test_the_lightning_callback(stop, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    from netvitals.integrations.lightning import PreflightCallback

    model, _, loader, _ = made(softmax=True)

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model

        def training_step(self, batch, index):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss / max(1, self.trainer.max_epochs)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=3e-3)

    callback = PreflightCallback(stop=stop, batches=4)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], default_root_dir=tmp_path,
    )  # fmt: skip
    if stop:
        with pytest.raises(PreflightFailed):
            trainer.fit(Lit(), torch.utils.data.DataLoader(loader, batch_size=None))
    else:
        trainer.fit(Lit(), torch.utils.data.DataLoader(loader, batch_size=None))
        assert trainer.global_step == 8
    assert callback.result["double softmax"].status == "failed", str(callback.result)


def test_the_hugging_face_callback(tmp_path):
    transformers = pytest.importorskip("transformers")
    from netvitals.integrations.huggingface import PreflightCallback

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = made(softmax=True)[0]

        def forward(self, x, labels):
            return {"loss": nn.functional.cross_entropy(self.net(x), labels)}

    rows = [{"x": x, "labels": y} for xs, ys in made()[2] for x, y in zip(xs, ys)]
    callback = PreflightCallback(stop=False, batches=4)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=32, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(Net(), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert callback.result["double softmax"].status == "failed" and trainer.state.global_step == 2
