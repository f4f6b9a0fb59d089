"""Claims on the transition in stiffness. Levels are judged as printed, directions apart from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claim, Config, Expected, Plot, Row, Verdict
from netvitals_lab.engine.judges import over_setups
from netvitals_lab.papers.gate_density import transition_judges
from netvitals_lab.papers.gate_density import transition_pictures as pictures
from netvitals_lab.papers.gate_density.setups import CHOICES, drawn, everywhere
from netvitals_lab.papers.gate_density.transition_judges import LEVEL

STUDY = "gate-density-transition"
# which judges have no IoU in them: the operands of IoU make no difference to them
WITHOUT_IOU = (transition_judges.jacobian, transition_judges.restarts, transition_judges.landscape)


def _claim(
    name: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    check: str,
    plot: Callable[[Sequence[Row]], Plot] | None = None,
    *,
    whole: bool = False,
) -> Claim:
    """A claim of A.9 that is asked in every set-up, unless its judge takes the rows of all of them (``whole``)."""

    def uses(config: Config) -> bool:
        return config["check"] in check.split(" and ")

    return Claim(
        id=f"gate-density/{name}",
        study=STUDY,
        statement=statement,
        expected=expected,
        judge=judge if whole else everywhere(judge, operands=judge not in WITHOUT_IOU, printed=expected.value),
        uses=uses,
        plot=None if plot is None else drawn(plot),
        choices=CHOICES,
    )


CLAIMS = (
    _claim(
        "E21",
        "At stiffness 20 Adam reconstructs best of five optimisers",
        Expected(direction="Adam best"),
        transition_judges.best_at_20,
        "methods",
        transition_judges.curves("methods", "iou", "method"),
    ),
    _claim(
        "E21-levels",
        "IoU at stiffness 20 is .947, .883, .784, .754, .787 (Table 6)",
        Expected(0.0, LEVEL),
        transition_judges.levels_anywhere,
        "methods",
        transition_judges.curves("methods", "active", "method"),
        whole=True,
    ),
    _claim(
        "E22",
        "The loss is smallest near stiffness 5, and IoU falls from 10 on",
        Expected(direction="α ≈ 5"),
        transition_judges.loss_minimum,
        "transition",
        transition_judges.curves("transition", "loss", "method"),
    ),
    _claim(
        "E23-information",
        "A fourth parameter makes the Fisher information nearly singular",
        Expected(direction="ratio of condition numbers ≫ 1"),
        transition_judges.collinear,
        "transition",
        pictures.fitted,
    ),
    _claim(
        "E29-scaling",
        "The exponent of the order parameter lies between .030 and .043",
        Expected(0.0365, 0.0065),
        transition_judges.scaling,
        "resolution",
        transition_judges.curves("resolution", "iou", "size"),
    ),
    _claim(
        "C23",
        "Smallest singular value and stable rank of the effective Jacobian fall with stiffness",
        Expected(direction="fall"),
        transition_judges.jacobian,
        "jacobian",
        transition_judges.curves("jacobian", "stable_rank", "size"),
    ),
    _claim(
        "C24",
        "With fewer active pixels than the rank of A, recovery fails",
        Expected(direction="fails always"),
        over_setups(transition_judges.recovery, transition_judges.by_recovery),
        "jacobian",
        whole=True,
    ),
    _claim(
        "C22",
        "Lemma A.4: momentum, not rescaling, is what helps Adam",
        Expected(direction="Adam > oracle, α ≥ 5"),
        transition_judges.momentum,
        "oracle",
        pictures.oracle,
    ),
    _claim(
        "E25-levels",
        "Over stiffness Adam has IoU .950, the oracle .794, PGD .811; the oracle's gap to Adam is .332 at 13 and .246 "
        "at 25, its active share 1.12 and 1.64 times that of PGD at 10 and 25",
        Expected(direction="every number within .05"),
        transition_judges.oracle_anywhere,
        "oracle",
        whole=True,
    ),
    _claim(
        "N14",
        "Adam's lead over the oracle anticorrelates with |dF/dα| (r = −.799, as the text has of the oracle's over PGD)",
        Expected(direction="r < 0"),
        transition_judges.gap_of_adam_and_closing,
        "oracle",
    ),
    _claim(
        "E25-reversal",
        "Between stiffness 10 and 25 the oracle ends below projected gradient",
        Expected(direction="by .093 to .183"),
        transition_judges.reversal,
        "oracle",
    ),
    _claim(
        "E25-resolved",
        "Above stiffness 30 the oracle ends below projected gradient no more",
        Expected(direction="not below"),
        transition_judges.resolved,
        "oracle",
    ),
    _claim(
        "E25-closing",
        "The oracle loses most against projected gradient where gates close fastest",
        Expected(direction="r < 0"),
        transition_judges.gap_and_closing,
        "oracle",
    ),
    _claim(
        "E29-difficulty",
        "Five features of a problem tell whether it will be solved",
        Expected(direction="AUC > 0.9"),
        transition_judges.difficulty,
        "kernels",
    ),
    _claim(
        "E29-size",
        "Resolution matters less than stiffness",
        Expected(direction="small effect"),
        transition_judges.small_effect("resolution", "size"),
        "resolution",
        transition_judges.curves("resolution", "iou", "size"),
    ),
    _claim(
        "E29-noise",
        "IoU varies by less than about 6 % between 15 and 60 dB",
        Expected(direction="< 6.3 %"),
        transition_judges.noise,
        "noise",
        transition_judges.curves("noise", "iou", "snr"),
    ),
    _claim(
        "E29-cutoff",
        "Reconstruction is best at the cutoff c = ½",
        Expected(0.5, 0.0),
        transition_judges.cutoff,
        "cutoff",
        pictures.cutoffs,
    ),
    _claim(
        "E29-success",
        "Fewer than a fifth of the reconstructions succeed above stiffness 14",
        Expected(direction="< 0.2"),
        transition_judges.success,
        "transition and methods",
        pictures.successes,
    ),
    _claim(
        "E29-restarts",
        "Restarts end far apart in the input and close in the output",
        Expected(direction="input spread > output spread"),
        transition_judges.restarts,
        "restarts",
        pictures.spreads,
    ),
    _claim(
        "E29-targets",
        "Structured targets are easier than noise",
        Expected(direction="easier"),
        transition_judges.targets,
        "targets",
        transition_judges.curves("targets", "iou", "target"),
    ),
    _claim(
        "E29-landscape",
        "Stiffness turns slices of the loss into plateaus",
        Expected(direction="flatter at α = 40"),
        transition_judges.landscape,
        "landscape",
        pictures.slices,
    ),
)
