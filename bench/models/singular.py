"""Dead directions against the tools people use now, measured side by side: K-FAC, DDCAdam.

    python bench/models/singular.py [--rounds 9] [--tasks kfac,ddcadam,order]

Variants take turns within a round, so that what else the machine does falls on all of them alike; CPU time of the
process is counted, one thread. Printed are medians over rounds of the ratio to our own time in the round. Peers that
are not installed are left out; peers that sample labels race our Monte Carlo Fisher, exact ones our exact one.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from netvitals import optim, singular
from netvitals_lab import models

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.set_num_threads(1)


def problem() -> tuple[nn.Sequential, Tensor, Tensor]:
    """A briefly trained tanh MLP of 72,453 parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 5))
    x = torch.randn(512, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return net, x, y


def race(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median ratio to the first variant within a round, and median milliseconds; one warm-up each."""
    for name in list(variants):
        try:
            variants[name]()
        except Exception as error:  # a peer that is missing or broken must not stop the others
            print(f"  {name}: left out ({type(error).__name__}: {str(error)[:90]})")
            del variants[name]
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    ours = times[next(iter(times))]
    return {
        n: (statistics.median(a / b for a, b in zip(t, ours)), 1000 * statistics.median(t)) for n, t in times.items()
    }


def show(title: str, found: dict[str, tuple[float, float]]) -> None:
    print(title)
    for name, (ratio, milliseconds) in found.items():
        print(f"  {name:34s} {ratio:7.2f} × ours   ({milliseconds:.1f} ms of CPU)")


def kfac(rounds: int) -> None:
    net, x, y = problem()
    loss = nn.CrossEntropyLoss()

    def ours(fisher: str, model: nn.Module = net, inputs: Tensor = x, labels: Tensor = y) -> Callable[[], object]:
        return lambda: singular.kfac(model, "ce", (inputs, labels), fisher=fisher, bias=True, spectra=False)

    def curvlinops(kind: str, model: nn.Module = net, inputs: Tensor = x, labels: Tensor = y) -> Callable[[], object]:
        def run() -> object:
            from curvlinops import KFACLinearOperator

            params = [p for p in model.parameters() if p.requires_grad]
            op = KFACLinearOperator(
                model, loss, params, [(inputs, labels)], fisher_type=kind, check_deterministic=False
            )
            op @ torch.ones(op.shape[1])  # the factors are computed at first use
            return op

        return run

    def backpack() -> object:
        from backpack import backpack as extension
        from backpack import extend
        from backpack.extensions import KFAC

        model, cost = extend(copy.deepcopy(net)), extend(nn.CrossEntropyLoss())
        with extension(KFAC(mc_samples=1)):
            cost(model(x), y).backward()
        return model

    def nngeometry() -> object:
        from nngeometry.metrics import FIM
        from nngeometry.object import PMatKFAC

        loader = DataLoader(TensorDataset(x, y), batch_size=512)
        return FIM(model=net, loader=loader, representation=PMatKFAC, variant="classif_logits", device="cpu")

    def asdl() -> object:
        import asdl as library

        model = copy.deepcopy(net)
        config = library.FisherConfig(
            fisher_type="fisher_mc", fisher_shapes=["kron"], loss_type="cross_entropy", data_size=len(x)
        )
        maker = library.get_fisher_maker(model, config)
        maker.setup_loss_call(F.cross_entropy, maker.setup_model_call(model, x), y)
        maker.forward_and_backward()
        return model

    show(
        "K-FAC factors of the 72,453-parameter MLP, sampled labels",
        race(
            {"netvitals": ours("monte-carlo"), "curvlinops": curvlinops("mc"), "backpack": backpack, "asdl": asdl},
            rounds,
        ),
    )
    show(
        "K-FAC factors of the 72,453-parameter MLP, exact expectation",
        race({"netvitals": ours("expected"), "curvlinops": curvlinops("type-2"), "nngeometry": nngeometry}, rounds),
    )
    resnet = models.build("resnet-mini,channels=3", seed=0).eval()
    images, labels = torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,))
    for p in [p for m in resnet.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]:
        p.requires_grad_(False)  # curvlinops has no K-FAC of norms
    few = max(3, rounds // 2)
    show(
        "K-FAC factors of the small ResNet, sampled labels",
        race(
            {
                "netvitals": ours("monte-carlo", resnet, images, labels),
                "curvlinops": curvlinops("mc", resnet, images, labels),
            },
            few,
        ),
    )


def ddcadam(rounds: int) -> None:
    step_time("gpt-micro", steps=10, rounds=3 * rounds)
    step_time("gpt-micro,depth=6,width=512,heads=8", steps=1, rounds=rounds)


def step_time(spec: str, steps: int, rounds: int) -> None:
    def stepper(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Callable[[], object]:
        model = models.build(spec, seed=0)
        for p in model.parameters():
            p.grad = 1e-3 * torch.randn_like(p)
        optimizer = make(model)

        def run() -> None:
            for _ in range(steps):
                optimizer.step()

        return run

    tokens = torch.randint(0, 256, (2, 8))
    found = race(
        {
            "torch Adam(foreach=True)": stepper(lambda m: torch.optim.Adam(m.parameters(), lr=1e-4, foreach=True)),
            "BalancedAdam, gauges found": stepper(
                lambda m: optim.BalancedAdam(m.parameters(), optim.find_gauges(m, "ce", tokens).gauges, lr=1e-4)
            ),
            "BalancedAdam, a radial rate": stepper(
                lambda m: optim.BalancedAdam(
                    m.parameters(), optim.find_gauges(m, "ce", tokens).gauges, lr=1e-4, lr_radial=3e-4
                )
            ),
            "BalancedAdam, no gauges": stepper(lambda m: optim.BalancedAdam(m.parameters(), lr=1e-4)),
        },
        rounds,
    )
    size = sum(p.numel() for p in models.build(spec, seed=0).parameters()) / 1e6
    print(f"an optimiser step on a GPT of {size:.1f} M parameters, as a ratio to torch's Adam(foreach=True)")
    for name, (ratio, milliseconds) in found.items():
        print(f"  {name:34s} {ratio:7.2f}   ({milliseconds / steps:.2f} ms of CPU a step)")


def order(rounds: int) -> None:
    cube = lambda th: th[:1].pow(3).expand(50, 1)
    found = singular.kl_order(cube, torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    print(f"kl_order of one direction: {found.passes} forward-mode passes (at most 12)")


TASKS = {"kfac": kfac, "ddcadam": ddcadam, "order": order}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    for name in options.tasks.split(","):
        if name not in TASKS:
            parser.error(f"there is no task {name!r}; choose from {', '.join(TASKS)}")
        TASKS[name](options.rounds)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end")


if __name__ == "__main__":
    main()
