"""Small trials that worker processes can import: they compute, fail, die, or wait, as their configuration says."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Toy:
    seeds: int = 3
    act: str = "compute"
    folder: str = ""


def trials(p):
    return [{"seed": s, "act": p.act, "folder": p.folder} for s in range(p.seeds)]


def trial(config):
    folder, name = Path(config["folder"]), f"{config['seed']}"
    if config["folder"]:
        with open(folder / "log", "a") as log:  # how often a trial really ran; a pure trial would not write
            log.write(name + "\n")
    act = config["act"] if config["seed"] == 1 else "compute"
    if act == "raise":
        raise ArithmeticError("seed 1 does not converge")
    if act == "raise-once" and not (folder / "tried").exists():
        (folder / "tried").touch()
        raise ArithmeticError("seed 1 does not converge yet")
    if act == "exit":
        raise SystemExit(3)
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "wait-once" and not (folder / "pid").exists():
        (folder / "pid.new").write_text(str(os.getpid()))
        (folder / "pid.new").rename(folder / "pid")
        time.sleep(60)
    if config["act"] == "slow" and not (folder / "hurry").exists():
        time.sleep(0.3)
    if config["act"] == "bulk":
        return [{"value": 0.0, "text": "x" * 50_000}]
    draw = torch.randn(4, generator=torch.Generator().manual_seed(config["seed"]))
    return [
        {"value": draw.mean(), "unseeded": torch.rand(()), "threads": torch.get_num_threads(), "curve": draw.tolist()}
    ]


def summary(rows):
    return {"mean": sum(r["value"] for r in rows) / len(rows)}


def not_rows(config):
    return "three"
