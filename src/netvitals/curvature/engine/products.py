r"""Batched second-order products on a recorded tape, split into Gauss–Newton and tensor part.

With $u = \nabla L$ held fixed at the outputs, $G_w(u) = J_{out\leftarrow w}^\top u$ is the gradient at node $w$. One
backward pass through $\langle G_w, z\rangle$ gives at once

* with respect to $u$: $a = J_{out\leftarrow w} z$, from which $H^{GN}_{v,w} z = J_{out\leftarrow v}^\top\nabla^2L\,a$
  for **every** $v$ by one more vector-Jacobian product;
* with respect to $\varepsilon_v$: $H^T_{v,w} z$ for every $v$, directly and not as a small difference of large numbers.

So a probe at $w$ yields column $w$ of H, GN and T together. For piecewise-linear nets the second graph has no path back
to ε, or only zeros on it; this is noticed once, and T is then an exact zero that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from netvitals.curvature.engine.checks import asymmetry, require_symmetric
from netvitals.curvature.engine.cost import Cost
from netvitals.curvature.engine.fisher import FISHERS, OutputLikelihood, likelihood_at
from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.engine.tape import Tape

Part = Literal["H", "GN", "T", "fisher", "fisher-mc", "fisher-empirical"]
Pieces = list[Tensor]  # one tensor (m, ...) per leaf of a node
ROOTED = 0.3  # of a backward pass, for a Gauss–Newton column from output Jacobians that are known
CACHED = 600_000  # bytes of graph and parameters below which batched products gain on a CPU


@dataclass
class Column:
    """H_{v,w} z for all v: per node a list of pieces of shape (m, ...); ``tensor`` is None where T is exactly zero."""

    gauss_newton: list[Pieces]
    tensor: list[Pieces | None]
    spread: np.ndarray | None = None  # over many batches, ⟨mean Hz, Hz of a batch⟩ by (batch, H GN T, v, probe)

    def hessian(self, v: int) -> Pieces:
        t = self.tensor[v]
        return self.gauss_newton[v] if t is None else [g + s for g, s in zip(self.gauss_newton[v], t)]

    @classmethod
    def joined(cls, parts: Sequence[Column]) -> Column:
        """One column from those of portions of its probes."""
        if len(parts) == 1:
            return parts[0]
        join = lambda pieces: [torch.cat(c) for c in zip(*pieces)]
        nodes = range(len(parts[0].gauss_newton))
        return cls(
            [join([p.gauss_newton[v] for p in parts]) for v in nodes],
            [None if parts[0].tensor[v] is None else join([p.tensor[v] for p in parts]) for v in nodes],
        )


class Products:
    """Columns of the block Hessian from a tape, by batches of probes that fit the memory budget."""

    def __init__(
        self,
        tape: Tape,
        *,
        by_sample: bool = False,
        memory: int = 2 << 30,
        planned: int = 30,
        roots: Literal["auto", "never"] = "auto",
        split: bool = True,
        cost: Cost | None = None,
    ) -> None:
        self.tape, self.memory = tape, memory
        self.cost = Cost(back=1.0 if tape.space == "activation" else 2.0) if cost is None else cost
        self.leaves: list[list[Tensor]] = [[r] for r in self.rows_of(tape)] if by_sample else tape.leaves
        self.flat = [leaf for leaves in self.leaves for leaf in leaves]
        self.by_sample = by_sample
        self.batched = True
        self.pull = [p.clone().requires_grad_(True) for p in tape.pull]
        if split:
            _ = self.gradient
        self.symmetric: set[str] = set()  # what was found so; batches of one stream share it
        self._straight: set[int] = set()
        self.curved_at: set[int] = set()  # nodes whose column has a tensor part; batches of one stream share them
        self.labels, self.seed = 1, 0  # drawn for a Monte Carlo Fisher matrix, and their seed
        self._fisher: dict[str, Tensor] = {}
        self.roots: list[Tensor] | None = None
        if roots == "auto" and tape.space == "activation" and not tape.interacts:
            self.roots = self._output_jacobians(planned)

    @staticmethod
    def rows_of(tape: Tape) -> list[Tensor]:
        """One perturbation by example a node; a sentence where there is none."""
        if tape.single_rows is None:
            odd = [n.name for n, rows in zip(tape.nodes, tape.rows) if len(rows) != 1 or rows[0] is None]
            raise ValueError(
                f"{', '.join(odd)}: the output is several tensors or has no batch dimension, so it cannot be split by "
                "example: use reduction='mean_block', or choose other nodes"
            )
        return tape.single_rows

    @cached_property
    def gradient(self) -> Sequence[Tensor | None]:
        """Jᵀu with u free, from which Gauss–Newton and tensor part come; refused where H is not their sum."""
        self.tape.demand_split()
        self.cost.count_vjps(1)
        return torch.autograd.grad(self.tape.outputs, self.flat, self.pull, create_graph=True, allow_unused=True)

    def size(self, v: int) -> int:
        """Length of the vectors at node v."""
        return sum(leaf.numel() for leaf in self.leaves[v])

    @property
    def chunk(self) -> int:
        """Probes at a time."""
        leaves = sum(leaf.numel() * leaf.element_size() for leaf in self.flat)
        per_probe = self.tape.kept_bytes + 2 * leaves
        room = max(self.memory - 3 * self.tape.kept_bytes, per_probe)
        if self.tape.space == "parameter" and self.flat[0].device.type == "cpu":
            # probes in parameters make batches of matrices; beyond the cache a loop of plain products is faster
            return 32 if self.tape.kept_bytes + leaves < CACHED else 1
        return max(1, min(room // (2 * per_probe), 32))

    def portions(self, m: int) -> list[slice]:
        """m probes in equal batches of at most ``chunk``."""
        count = max(1, -(-m // self.chunk))
        size = -(-m // count)
        return [slice(i, min(i + size, m)) for i in range(0, m, size)]

    @property
    def at_once(self) -> int:
        """Products after which columns are handed on: one column, there is nothing to be gained by waiting."""
        return 1

    def columns(self, wanted: Sequence[tuple[int, Pieces]]) -> list[Column]:
        """Several columns, each times its own probes."""
        return [self.column(w, probes) for w, probes in wanted]

    def column(self, w: int, probes: Pieces) -> Column:
        """Apply column w to probes, given as pieces of shape (m, ...) like the leaves of w."""
        return Column.joined([self.portion(w, probes, at) for at in self.portions(probes[0].shape[0])])

    def portion(self, w: int, probes: Pieces, at: slice) -> Column:
        """Apply column w to some of the probes."""
        self.require_symmetric()
        return self._column(w, [p[at] for p in probes])

    def _column(self, w: int, probes: Pieces) -> Column:
        m = probes[0].shape[0]
        heads, tails = self._gradient_of(w, probes)
        pulls = [] if self.roots is not None else self.pull  # the roots already know J z
        curved = [] if self.straight(w) else self.flat
        got = self.backward(heads, [*pulls, *curved], tails) if pulls or curved else []
        self.cost.products += m
        # half of the network lies after a node, on average; T goes back through all of it
        self.cost.spend(m * ((0.5 if pulls else ROOTED) + (1.0 if curved else 0.0)))
        pushed, tensors = got[: len(pulls)], (got[len(pulls) :] or [None] * len(self.flat))
        gn = self._gauss_newton(w, probes, pushed)
        return Column(
            self._by_node(gn, m),
            [None if all(t is None for t in ts) else filled(ts, leaves, m) for ts, leaves in self._split(tensors)],
        )

    def straight(self, w: int) -> bool:
        """True when T vanishes in the whole column of w: nothing after w bends (piecewise-linear nets, a linear head).

        Asked of one Gaussian probe, which no nonzero block maps to an exact zero.
        """
        if w not in self._straight and w not in self.curved_at:
            source = generator(w, self.flat[0].device)
            heads, tails = self._gradient_of(w, draw(1, self.leaves[w], source, "gaussian"))
            got = self.backward(heads, self.flat, tails)
            self.cost.spend(1.0)
            nothing = all(t is None or not bool(t.any()) for t in got)
            (self._straight if nothing else self.curved_at).add(w)
        return w in self._straight

    def whole(self, probes: Pieces, part: Part = "H") -> Pieces:
        """The whole matrix over all leaves times probes (m, ...) per leaf; no split, one backward pass for H."""
        self.require_symmetric(part)
        out = [self._whole([p[at] for p in probes], part) for at in self.portions(probes[0].shape[0])]
        return out[0] if len(out) == 1 else [torch.cat(c) for c in zip(*out)]

    def require_symmetric(self, part: str = "H") -> None:
        """Raise a sentence where torch's second derivatives are wrong: asked before the first product of any method.

        Gauss–Newton takes those of the loss alone. Of activations each example has its own perturbation here: one that
        is shared may cancel out (before a batch norm), and what is left is rounding.
        """
        kind = "loss" if part == "GN" else "model"
        if kind in self.symmetric or part in FISHERS:
            return
        if kind == "loss":
            leaves, apply = self.tape.detached, lambda z: self.curved(z, 1)
        else:
            each = [row for rows in self.tape.rows for row in rows]
            leaves = [leaf if row is None else row for row, leaf in zip_longest(each, self.flat)]
            known = self.full_gradient if part == "H" and not each else self._gradient_of_loss(leaves)

            def apply(z: Pieces) -> Pieces:
                pairs = [(g, one) for g, one in zip(known, z) if g is not None and g.requires_grad]
                self.cost.spend(2.0)
                return filled(self.backward([g for g, _ in pairs], leaves, [one for _, one in pairs]), leaves, 1)

        require_symmetric(asymmetry(apply, leaves), leaves[0].dtype)
        self.symmetric.add(kind)

    def _whole(self, probes: Pieces, part: str) -> Pieces:
        m = probes[0].shape[0]
        if part == "H":
            pairs = [(g, z) for g, z in zip(self.full_gradient, probes) if g is not None and g.requires_grad]
            got = self.backward([g for g, _ in pairs], self.flat, [z for _, z in pairs])
            self.cost.count_products(m)
            return filled(got, self.flat, m)
        if part == "fisher":
            _ = self.likelihood  # for which Gauss–Newton is the Fisher matrix
        pairs = [(g, z) for g, z in zip(self.gradient, probes) if g is not None and g.requires_grad]
        wrt = self.flat if part == "T" else self.pull
        got = self.backward([g for g, _ in pairs], wrt, [z for _, z in pairs])
        if part == "T":
            # a linear end of the network does not bend: between activations a product does not pass it
            self.cost.count_products(m, 0.75 if self.tape.space == "activation" else 1.0)
            return filled(got, self.flat, m)
        self.cost.count_vjps(m)
        if part in ("fisher-mc", "fisher-empirical"):
            tangents = torch.zeros(m, *self.pull[0].shape, dtype=self.pull[0].dtype) if got[0] is None else got[0]
            return self.pulled([self.likelihood.outer(self._roots_of(part), tangents)], m)
        return self.pulled(self.curved(got, m), m)

    @cached_property
    def likelihood(self) -> OutputLikelihood:
        """What the loss is the likelihood of; a sentence where it is none."""
        return likelihood_at(self.tape.detached, lambda v: self.curved([v], v.shape[0])[0])

    def _roots_of(self, part: str) -> Tensor:
        if part not in self._fisher:
            out = self.tape.outputs[0].detach()
            drawn = lambda: self.likelihood.drawn(out, self.labels, self.seed)
            self._fisher[part] = drawn() if part == "fisher-mc" else self.likelihood.given(self.tape.pull[0])
        return self._fisher[part]

    @cached_property
    def full_gradient(self) -> Sequence[Tensor | None]:
        """∇L with the loss attached to the outputs, for products with H in one backward pass."""
        return self._gradient_of_loss(self.flat)

    def _gradient_of_loss(self, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
        self.cost.count_vjps(1)
        return torch.autograd.grad(self.tape.whole_loss(), leaves, create_graph=True, allow_unused=True)

    def push(self, w: int, probes: Pieces) -> Pieces:
        """J_{out←w} z, per output tensor (m, B, ...)."""
        heads, tails = self._gradient_of(w, probes)
        got = self.backward(heads, self.pull, tails)
        self.cost.spend(0.5 * probes[0].shape[0])
        return [
            torch.zeros(probes[0].shape[0], *p.shape, dtype=p.dtype, device=p.device) if a is None else a
            for a, p in zip(got, self.pull)
        ]

    def _gradient_of(self, w: int, probes: Pieces) -> tuple[list[Tensor], list[Tensor]]:
        at = sum(len(ls) for ls in self.leaves[:w])
        mine = self.gradient[at : at + len(self.leaves[w])]
        pairs = [(g, z) for g, z in zip(mine, probes) if g is not None and g.requires_grad]
        return [g for g, _ in pairs], [z for _, z in pairs]

    def _gauss_newton(self, w: int, probes: Pieces, pushed: Sequence[Tensor | None]) -> Pieces:
        m = probes[0].shape[0]
        if self.roots is None:
            return self.pulled(self.curved(pushed, m), m)
        out, root = self.tape.outputs[0], self.roots[w]
        k, b, d = root.shape
        if self.by_sample:
            a = torch.einsum("kbd,mbd->mbk", root, probes[0].reshape(m, b, d))
        else:  # one matrix product: (KB, d_w) (d_w, m)
            a = (root.reshape(k * b, d) @ probes[0].reshape(m, d).mT).reshape(k, b, m).permute(2, 1, 0)
        c = self.curved([a.reshape(m, *out.shape)], m)[0].reshape(m, b, k)
        if self.by_sample:
            rows = [torch.einsum("mbk,kbd->mbd", c, r) for r in self.roots]
        else:
            flat = c.permute(0, 2, 1).reshape(m, k * b)
            rows = [flat @ r.reshape(k * b, -1) for r in self.roots]
        return [r.reshape(m, *leaf.shape) for r, leaf in zip(rows, self.flat)]

    def curved(self, pushed: Sequence[Tensor | None], m: int) -> list[Tensor]:
        """∇²L times a batch of output tangents."""
        pairs = [(s, a) for s, a in zip(self.tape.slope, pushed) if a is not None and s.requires_grad]
        got = self.backward([s for s, _ in pairs], self.tape.detached, [a for _, a in pairs])
        return [
            torch.zeros(m, *o.shape, dtype=o.dtype, device=o.device) if g is None else g
            for g, o in zip(got, self.tape.detached)
        ]

    def pulled(self, cotangents: Sequence[Tensor], m: int) -> Pieces:
        """Jᵀ times m cotangents an output."""
        got = self.backward(self.tape.outputs, self.flat, cotangents)
        self.cost.count_vjps(m)
        return filled(got, self.flat, m)

    def _output_jacobians(self, planned: int) -> list[Tensor] | None:
        """J_{out←v} by sample, (K, B, d_v), when K backward passes are fewer than the sweep would need."""
        single = self.tape.single_rows
        if len(self.tape.outputs) != 1 or single is None:
            return None
        out, b = self.tape.outputs[0], self.tape.examples
        if out.shape[0] != b:
            return None
        k = out.numel() // b
        width = sum(leaf.numel() for leaf in self.flat)
        if k > 0.5 * planned * len(self.leaves) or k * b * width * out.element_size() > self.memory // 4:
            return None
        basis = torch.eye(k, dtype=out.dtype, device=out.device)
        rows: list[list[Tensor]] = []
        for start in range(0, k, self.chunk):
            part = basis[start : start + self.chunk]
            cot = part[:, None].expand(-1, b, -1).reshape(len(part), *out.shape)
            got = self.backward([out], single, [cot])
            rows.append([g.reshape(len(part), b, -1) for g in filled(got, single, len(part))])
        self.cost.count_vjps(k)
        return [torch.cat(c) for c in zip(*rows)]

    def backward(
        self, heads: Sequence[Tensor], wrt: Sequence[Tensor], tails: Sequence[Tensor]
    ) -> Sequence[Tensor | None]:
        """A batch of vector-Jacobian products; by vmap, or one by one where an operation does not allow it."""
        if not heads:
            return [None] * len(wrt)
        if self.batched and tails[0].shape[0] > 1:
            try:
                return torch.autograd.grad(
                    heads, wrt, tails, retain_graph=True, allow_unused=True, is_grads_batched=True
                )
            except (RuntimeError, NotImplementedError):
                # vmap's rules differ from the operation's own (group_norm's fails on shapes): one by one tells
                self.batched = False
        single = [
            torch.autograd.grad(heads, wrt, [t[i] for t in tails], retain_graph=True, allow_unused=True)
            for i in range(tails[0].shape[0])
        ]
        if len(single) == 1:
            return [None if g is None else g[None] for g in single[0]]
        return [None if col[0] is None else torch.stack(col) for col in zip(*single)]

    def _split(self, flat: Sequence[Tensor | None]) -> list[tuple[list[Tensor | None], list[Tensor]]]:
        out, at = [], 0
        for leaves in self.leaves:
            out.append((list(flat[at : at + len(leaves)]), leaves))
            at += len(leaves)
        return out

    def _by_node(self, flat: Sequence[Tensor], m: int) -> list[Pieces]:
        return [filled(ts, leaves, m) for ts, leaves in self._split(list(flat))]


def filled(got: Sequence[Tensor | None], leaves: Sequence[Tensor], m: int) -> Pieces:
    """What was ``got`` for the ``leaves`` by ``m`` products, zeros where there was nothing."""
    return [
        torch.zeros(m, *leaf.shape, dtype=leaf.dtype, device=leaf.device) if g is None else g
        for g, leaf in zip(got, leaves)
    ]


Progress = Callable[[int, int], None]
