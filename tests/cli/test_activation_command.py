"""``netvitals activation``: the page, the JSON, and the sentence for a wrong name."""

import json
import math

import pytest

from netvitals import activations as A
from netvitals.cli import main
from netvitals.cli.activation import braille


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as leave:
        main(["activation", *arguments])
    out, err = capsys.readouterr()
    return leave.value.code or 0, out, err


def test_json_holds_the_numbers_of_the_library(capsys):
    code, out, _ = run(capsys, "gelu", "--json", "--theta", "0.1", "--depth", "4", "--width", "64")
    page = json.loads(out)
    assert code == 0 and page["name"] == "gelu" and page["class"]["label"] == "C"
    (gates,) = page["gates"]
    assert gates["z_low"] == pytest.approx(A.crossings("gelu", 0.1).z_low)
    assert gates["intervals"][-1][1] == "inf"
    assert gates["density_standard_normal"] == pytest.approx(0.8195, abs=6e-5)
    assert (gates["direction"], gates["limit"]) == ("rises", 1.0)
    assert page["constants"]["lam"] == pytest.approx(1.500527, abs=1e-6)
    assert page["drive"]["K_s"] == pytest.approx(0.0078125)
    assert {v["z"]: v["f"] for v in page["values"]}[1.0] == pytest.approx(0.8413447, abs=1e-6)
    assert page["under_normal_input"]["mean_gate"] == pytest.approx(0.5393, abs=6e-5)


def test_json_is_valid_where_numbers_are_infinite_or_missing(capsys):
    _, out, _ = run(capsys, "leaky_relu:0.2", "--json")
    page = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert page["gates"][0]["z_low"] == "-inf" and page["constants"]["slope"] is None
    assert "does not have" in page["drive"]["why_not"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gelu", ["x Phi(x)", "class C", "-0.5544", "-1.8613", "0.8195", "rises", "lambda 1.50053", "K_t 0.5"]),
        ("relu", ["class A almost everywhere", "falls", "does not"]),
        ("sigmoid", ["class D", "of class B3", "taken away first"]),
        ("softplus:50", ["-0.0439", "-0.0919"]),
        ("sin", ["class B3", "-inf", "..."]),
        ("elu", ["outside", "not C2 at 0", "undefined"]),
        ("topk:gelu:0.75", ["not elementwise", "75.0%"]),
        ("swish", ["silu"]),
    ],
)
def test_the_page_says_what_matters(capsys, name, words):
    code, out, _ = run(capsys, name)
    assert code == 0
    for word in words:
        assert word in out, (word, out)
    assert max(map(len, out.splitlines())) <= 80  # no terminal: rich assumes 80 columns


@pytest.mark.slow
def test_every_name_has_a_page(capsys):
    for name in A.names():
        code, out, _ = run(capsys, name, "--json")
        assert code == 0 and json.loads(out)["name"].startswith(name.split(":")[0]), name


def test_a_function_of_the_user(capsys, tmp_path, monkeypatch):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "acts.py").write_text("import torch\ndef wave(x):\n    return torch.tanh(2 * x)\n")
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "pack.acts:wave", "--json", "--theta", "0.1")
    assert code == 0 and json.loads(out)["class"]["label"] == "B3"
    assert json.loads(out)["gates"][0]["z_low"] == pytest.approx(-math.acosh(math.sqrt(20)) / 2)
    code, _, err = run(capsys, "pack.nothing:wave")
    assert code == 2 and "no module" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gleu"], "there is no activation 'gleu'; nearest: gelu"),
        (["gelu", "--theta", "-1"], "theta= must not be negative"),
        (["softplus:x"], "is not a number"),
        (["gelu", "--width", "0"], "width= must be at least 1"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_2(capsys, arguments, sentence):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and sentence in err and len(err.strip().splitlines()) == 1 and "Traceback" not in out + err


def test_a_curve_in_braille_spans_its_box():
    lines = braille([math.sin(i / 5) for i in range(80)], width=40, height=6)
    assert len(lines) == 6 and all(len(line) >= 40 for line in lines)
    assert lines[0].split()[-1] == "1" and lines[-1].split()[-1] == "-1"
    assert len({line[:40] for line in lines}) == 6
    assert braille([2.0] * 8, width=4, height=1)[0].endswith("0")
