"""Claims on what gate density is good for: pruning, privacy, fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.lab.engine.claim import PAIRS
from netvitals.lab.engine.judges import column, compared, difference, means, some
from netvitals.lab.engine.verdict import Fact
from netvitals.lab.studies import Claim, Expected, Plot, Row, Series, Verdict, decide, not_judged, not_run
from netvitals.lab.studies.gate_density.fine_tuning import correlations
from netvitals.lab.studies.gate_density.privacy import ATTACKS, CLOSE
from netvitals.lab.studies.gate_density.pruning import SCORES

SMOOTH = ("gelu", "silu", "mish")


def _accuracy(rows: Sequence[Row], act: str, score: str) -> np.ndarray:
    """(seeds, ratios)."""
    mine = [r for r in rows if (r["act"], r["score"]) == (act, score)]
    seeds = sorted({r["seed"] for r in mine})
    return np.array([[r["accuracy"] for r in sorted(mine, key=lambda r: r["ratio"]) if r["seed"] == s] for s in seeds])


def _gaps(rows: Sequence[Row], act: str, other: str = "magnitude") -> list[float]:
    """Accuracy pruned by gates minus pruned by ``other``, mean over ratios, of every seed: ratios of one run are not
    independent, as the paper's test takes them to be."""
    return (_accuracy(rows, act, "gate") - _accuracy(rows, act, other)).mean(1).tolist()


def _told(rows: Sequence[Row], act: str) -> dict[str, Fact]:
    gate, magnitude = _accuracy(rows, act, "gate"), _accuracy(rows, act, "magnitude")
    whole = np.mean([r["whole"] for r in rows if r["act"] == act])
    costs = [float(whole - scored[:, 0].mean()) for scored in (gate, magnitude)]
    try:
        test = str(stats.paired_t(gate.ravel(), magnitude.ravel()))
    except ValueError as error:
        test = str(error)
    return {
        f"{act}: gate minus magnitude by seed": _gaps(rows, act),
        f"{act}: the paper's test, over seeds × ratios": test,
        f"{act}: gate minus random channels, by seed": _gaps(rows, act, "random"),
        f"{act}: cost at the smallest ratio by gate, magnitude": costs,
    }


def _smooth(rows: Sequence[Row]) -> Verdict:
    """Over seeds: the mean gap of the smooth activations is below zero with its whole interval."""
    acts = [a for a in SMOOTH if any(r["act"] == a for r in rows)]
    facts = {name: fact for a in acts for name, fact in _told(rows, a).items()}
    by_seed = np.mean([_gaps(rows, a) for a in acts], axis=0).tolist()
    return compared(by_seed, -1, note="accuracy, gate minus magnitude, mean over smooth activations", facts=facts)


def _relu(rows: Sequence[Row]) -> Verdict:
    """No difference that can be told over seeds; what could have been told is in the facts."""
    gaps = _gaps(rows, "relu")
    if len(gaps) < 2:
        return not_run(f"{len(gaps)} seed is no spread")
    found = difference(gaps)
    facts: dict[str, Fact] = {"a difference that would have been seen": found.power, **_told(rows, "relu")}
    note = "accuracy, gate minus magnitude; holds where the interval has zero in it"
    more: dict[str, Any] = {"interval": (found.low, found.high), "seeds": found.pairs, "facts": facts}
    return decide(found.low <= 0 <= found.high, found.value, note=note, **more)


def _curves(rows: Sequence[Row]) -> Plot:
    ratios = sorted({r["ratio"] for r in rows})
    return Plot(
        "share of channels pruned",
        "test accuracy",
        [
            Series(
                f"{act}, {score}",
                ratios,
                _accuracy(rows, act, score).mean(0).tolist(),
                line=True,
                dashed=score == "random",
            )
            for act in ("relu", "gelu")
            for score in SCORES
        ],
    )


def _regression(rows: Sequence[Row], attack: str) -> tuple[stats.Logistic | None, str]:
    mine = some(rows, attack=attack)
    share = means(mine, "recovered", "alpha")
    facts = f"{attack} " + ", ".join(f"{a:g}: {s:.2f}" for a, s in share.items())
    try:
        fit = stats.logistic([np.log(r["alpha"]) for r in mine], [int(r["recovered"]) for r in mine])
    except ValueError as error:
        return None, f"{facts} ({str(error).removeprefix('logistic regression: ')})"
    return fit, f"{facts} (slope on log α {fit.coefficients[1]:+.3f}, p = {fit.p[1]:.2g})"


def _falls(rows: Sequence[Row], fit: stats.Logistic | None) -> bool:
    """A significant negative slope of iDLG; where stiffness separates the outcomes, the direction of the separation."""
    if fit is not None:
        return fit.coefficients[1] < 0 and fit.p[1] < 0.05
    alphas = {s: [r["alpha"] for r in rows if r["attack"] == "idlg" and r["recovered"] is s] for s in (True, False)}
    return bool(alphas[True]) and bool(alphas[False]) and max(alphas[True]) <= min(alphas[False])


def _unconverged(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Attacks whose share of recovered pictures still grows with the iterations, by more than one in twenty."""
    short, long = (f(r["iterations"] for r in rows) for f in (min, max))
    found: dict[str, list[float]] = {}
    for attack in ATTACKS:
        few, many = (means(rows, "recovered", "alpha", attack=attack, iterations=n) for n in (short, long))
        worst = max(few, key=lambda a: abs(many[a] - few[a]))
        if abs(many[worst] - few[worst]) > 0.05:
            found[f"{attack} at α = {worst:g}, {short} and {long} iterations"] = [few[worst], many[worst]]
    return found


def _privacy(rows: Sequence[Row]) -> Verdict:
    moving, longest = _unconverged(rows), max(r["iterations"] for r in rows)
    last = some(rows, iterations=longest)
    fits = {a: _regression(last, a) for a in ATTACKS}
    note = f"share of pictures within a squared error of {CLOSE:g} by stiffness: " + "; ".join(
        t for _, t in fits.values()
    )
    attack = fits["idlg"][0]
    if moving:
        text = "the attacks have not converged: the share of recovered pictures grows with the iterations"
        return not_judged(f"{text}; {note}", facts=moving)
    inverting = column(last, "recovered", attack="inverting")
    if attack is None and not any(r["recovered"] for r in last):
        return not_run("no attack recovers any picture at this scale; " + note)
    flat = np.mean(inverting) > 0.99 or (fits["inverting"][0] is not None and fits["inverting"][0].p[1] > 0.05)
    falls = _falls(last, attack)
    return decide(
        bool(falls and flat),
        None if attack is None else attack.coefficients[1],
        None if attack is None else attack.stderrs[1],
        note=note,
    )


def _shares(rows: Sequence[Row]) -> Plot:
    counts = sorted({r["iterations"] for r in rows})
    series = [
        Series(f"{a}, {n} iterations", list(share), list(share.values()), line=True, dashed=n != counts[-1])
        for a in ATTACKS
        for n in counts
        for share in (means(rows, "recovered", "alpha", attack=a, iterations=n),)
    ]
    return Plot("stiffness", "share recovered", series, log_x=True)


def _null(version: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        found = correlations(rows, version)
        pearson, spearman = found["all"]
        runs = len([r for r in rows if r["version"] == version])
        seen = math.tanh((1.96 + 0.84) / math.sqrt(runs - 3)) if runs > 3 else 1.0  # Fisher's z, in four of five
        return decide(
            pearson.p > 0.05 and spearman.p > 0.05,
            pearson.value,
            note="; ".join(f"{name}: {a}, {b}" for name, (a, b) in found.items()),
            facts={"a correlation that would have been seen": seen},
        )

    return judge


def _scatter(rows: Sequence[Row]) -> Plot:
    return Plot(
        "final density at 0.01",
        "accuracy after fine-tuning",
        [
            Series(
                f"{o}, {v}",
                [r["density"] for r in rows if (r["optimizer"], r["version"]) == (o, v)],
                [r["accuracy"] for r in rows if (r["optimizer"], r["version"]) == (o, v)],
            )
            for o in dict.fromkeys(r["optimizer"] for r in rows)
            for v in ("seen", "unseen")
        ],
    )


CLAIMS = (
    Claim(
        id="gate-density/C17",
        study="gate-density-pruning",
        seeds=PAIRS,
        statement="Pruning by gate density is harmful for smooth activations",
        expected=Expected(direction="gate below magnitude"),
        judge=_smooth,
        section="§5",
        plot=_curves,
    ),
    Claim(
        id="gate-density/E18-relu",
        study="gate-density-pruning",
        seeds=PAIRS,
        statement="For ReLU pruning by gates is as good as by magnitude",
        expected=Expected(direction="no difference that can be told"),
        judge=_relu,
        section="§5",
        uses=lambda c: c["act"] == "relu",
    ),
    Claim(
        id="gate-density/C18",
        study="gate-density-privacy",
        statement="Stiffness makes iDLG fail more often, and does nothing against Inverting Gradients",
        expected=Expected(direction="iDLG slope < 0, Inverting Gradients flat"),
        judge=_privacy,
        section="§5",
        plot=_shares,
        effect="slope of recovery on log stiffness, by attack, once more iterations change nothing",
        choices=(
            "an untrained toy victim of our own, digits of 8 × 8 pixels",
            "Adam at 0.05, two numbers of iterations",
        ),
        question="How many iterations did each attack have, and had it converged at every stiffness?",
    ),
    Claim(
        id="gate-density/E20",
        study="gate-density-fine-tuning",
        statement="Final density does not foretell fine-tuning accuracy on data that was seen",
        expected=Expected(direction="p > 0.05"),
        judge=_null("seen"),
        section="§5",
        plot=_scatter,
    ),
    Claim(
        id="gate-density/E20-unseen",
        study="gate-density-fine-tuning",
        statement="Nor on data the checkpoint has not seen",
        expected=Expected(direction="p > 0.05"),
        judge=_null("unseen"),
        section="§5",
    ),
)
