"""What watching costs: time of a training step alone, with netvitals, and with the tools people use now.

    python bench/watching/watch.py [--rounds 15] [--models mlp,resnet,gpt,gpt20m]

Every variant trains its own copy of the same model. The variants take turns, in another order every round, and every
turn is set against the two bare turns around its round, so that what else the machine does falls on all of them alike.
The median of these ratios is reported, and their mean, to which rare costly looks contribute. CPU time of the process
is counted: a tool that works in a thread of its own does not hide it. Peers that are not installed are left out. What
costs a few per cent, ``every=50``, is measured before the peers are loaded, whose threads and code cost the next few.
netvitals has all its vital signs on and writes its run to disk.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import netvitals as nv
from netvitals_lab import models

WARM_UP, TURN = 60, 50  # steps before the clock runs, steps per turn (a multiple of 50: whole periods)
EVERY = "netvitals every=1"
SMALL, FINE = "netvitals every=50", 8  # what costs a few per cent needs more turns to be told from noise
Step = Callable[[Tensor], None]
Attach = Callable[[nn.Module, torch.optim.Optimizer, str], tuple[Step, Callable[[], None]]]


# ---------------------------------------------------------------- what is trained


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    layers: list[nn.Module] = [nn.Linear(128, 128), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(128, 128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 10)), torch.randn(128, 128), torch.randint(0, 10, (128,))


def resnet() -> tuple[nn.Module, Tensor, Tensor]:
    return models.build("resnet-mini,channels=3"), torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))


def gpt() -> tuple[nn.Module, Tensor, Tensor]:
    return models.build("gpt-micro"), torch.randint(0, 256, (8, 64)), torch.randint(0, 256, (8, 64))


def gpt20m() -> tuple[nn.Module, Tensor, Tensor]:
    """20 million parameters, of which attention and MLPs have 19."""
    made = models.build("gpt-micro,vocab=2048,context=128,depth=6,width=512,heads=8")
    return made, torch.randint(0, 2048, (4, 128)), torch.randint(0, 2048, (4, 128))


MODELS = {"mlp": mlp, "resnet": resnet, "gpt": gpt, "gpt20m": gpt20m}
LARGE = {"gpt20m": 10}  # steps per turn of models whose step takes long; they race against the bare step alone


# ---------------------------------------------------------------- who watches


def bare(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
    return lambda loss: None, lambda: None


def netvitals(every: int) -> Attach:
    def attach(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
        watching = nv.watch(model, optimizer=optimizer, run=os.path.join(folder, "run"), every=every)
        return watching.step, watching.close

    return attach


def observatory(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
    from neural_observatory import Observatory

    watching = Observatory(model)
    watching.watch()
    count = iter(range(10**9))
    return lambda loss: watching.step(step=next(count), epoch=0), watching.stop


def trainscope(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
    from trainscope import TrainScope

    scope = TrainScope(model, optimizer, **_trainscope_place(folder)).attach()
    return lambda loss: scope.step(loss.item()), getattr(scope, "close", getattr(scope, "detach", lambda: None))


def _trainscope_place(folder: str) -> dict[str, object]:
    import trainscope as room

    config = getattr(room, "TrainScopeConfig", None) or getattr(room, "Config", None)
    for key in ("run_dir", "output_dir", "log_dir", "dir"):
        with contextlib.suppress(TypeError):
            if config is not None:
                return {"config": config(**{key: folder})}
    return {}


def delve(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
    from delve import SaturationTracker

    tracker = SaturationTracker(
        os.path.join(folder, "delve"), save_to="csv", modules=model, device="cpu", stats=["lsat"], log_interval=1
    )
    return lambda loss: None, tracker.close


def wandb_watch(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> tuple[Step, Callable[[], None]]:
    import wandb

    run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    run.watch(model, log="all", log_freq=1)
    return lambda loss: run.log({"loss": loss.detach()}), run.finish


VARIANTS: dict[str, Attach] = {
    "bare": bare,
    "netvitals every=50": netvitals(50),
    "netvitals every=5": netvitals(5),
    "netvitals every=1": netvitals(1),
    "neural-observatory": observatory,
    "trainscope": trainscope,
    "delve": delve,
    "wandb.watch": wandb_watch,
}


# ---------------------------------------------------------------- the clock


class Racer:
    """One variant with its own copy of the model."""

    def __init__(self, make: Callable[[], tuple[nn.Module, Tensor, Tensor]], attach: Attach, folder: str) -> None:
        torch.manual_seed(0)
        self.model, self.x, self.y = make()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.after, self.stop = attach(self.model, self.optimizer, folder)
        self.turns: list[float] = []

    def run(self, steps: int) -> float:
        """Train; CPU milliseconds per step."""
        start = time.process_time()
        for _ in range(steps):
            loss = F.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.after(loss)
        return 1000 * (time.process_time() - start) / steps


def race(name: str, rounds: int) -> dict[str, list[float]]:
    """Ratios to the bare step, one a round, of every variant on one model."""
    with tempfile.TemporaryDirectory() as folder:
        steps = LARGE.get(name, TURN)
        chosen = [EVERY] if name in LARGE else [v for v in VARIANTS if v != "bare"]

        def racer(variant: str) -> Racer | None:
            place = os.path.join(folder, variant.replace(" ", "-"))
            os.makedirs(place)
            try:
                with quiet():
                    made = Racer(MODELS[name], VARIANTS[variant], place)
                    made.run(WARM_UP if name not in LARGE else steps)
                return made
            except Exception as error:  # a peer that is missing or broken must not stop the others
                print(f"  {variant}: left out ({type(error).__name__}: {str(error)[:100]})")
                return None

        alone = racer("bare")
        assert alone is not None
        racers = {SMALL: found} if SMALL in chosen and (found := racer(SMALL)) else {}
        ratios: dict[str, list[float]] = {variant: [] for variant in chosen}
        with quiet():
            before = alone.run(steps)
            for _ in range(FINE * rounds if racers else 0):  # before peers bring their threads into the process
                t, after = racers[SMALL].run(TURN), alone.run(TURN)
                ratios[SMALL].append(t / ((before + after) / 2))
                before = after
        racers |= {v: found for v in chosen if v not in racers and (found := racer(v))}
        others = [v for v in racers if v != SMALL]
        order = random.Random(0)
        with quiet():
            before = alone.run(steps)
            for _ in range(rounds):
                turns = {variant: racers[variant].run(steps) for variant in order.sample(others, len(others))}
                after = alone.run(steps)
                for variant, t in turns.items():
                    ratios[variant].append(t / ((before + after) / 2))
                before = after
        ratios = {variant: found for variant, found in ratios.items() if found}
        for racer in racers.values():
            with quiet(), contextlib.suppress(Exception):
                racer.stop()
        return ratios


@contextlib.contextmanager
def quiet():
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


# ---------------------------------------------------------------- what is required


def requirements(ratio: dict[str, float]) -> list[tuple[str, float, float]]:
    """(what, measured, at most) for every requirement whose parts were run."""
    if SMALL not in ratio:
        return [("every=1 / bare", ratio[EVERY], 1.2)]
    rows = [("every=50 / bare", ratio[SMALL], 1.03)]
    for ours, peer, limit in (
        ("netvitals every=1", "neural-observatory", 1 / 2),
        ("netvitals every=1", "wandb.watch", 1 / 4),
        ("netvitals every=5", "trainscope", 1 / 3),
    ):
        if peer in ratio:
            rows.append((f"overhead {ours[10:]} / {peer}", (ratio[ours] - 1) / (ratio[peer] - 1), limit))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", default="mlp,resnet,gpt,gpt20m")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    failed = 0
    for name in arguments.models.split(","):
        steps = LARGE.get(name, TURN)
        print(f"{name}: {arguments.rounds} turns of {steps} steps, one thread; times of the bare step", flush=True)
        ratios = race(name, arguments.rounds)
        print(f"  {'':22s}   median     mean")
        for variant, found in ratios.items():
            error = statistics.stdev(found) / len(found) ** 0.5
            print(
                f"  {variant:22s} {statistics.median(found):8.3f} {statistics.mean(found):8.3f} ± {error:.3f}",
                flush=True,
            )
        for what, measured, limit in requirements({v: statistics.median(r) for v, r in ratios.items()}):
            verdict = "holds" if measured <= limit else "FAILS"
            failed += verdict == "FAILS"
            print(f"  {verdict}  {what:44s} {measured:7.3f}  (at most {limit:.3f})", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
