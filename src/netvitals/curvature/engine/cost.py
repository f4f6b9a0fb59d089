"""What a measurement of curvature costs, counted in passes through the network and not in seconds."""

from __future__ import annotations

from dataclasses import dataclass

PREPARED = 7.0  # passes before the first product: the anatomy, a survey, a doubled batch, the tape, its checks


@dataclass
class Cost:
    """What was spent, in passes through the network.

    A gradient is three of them: one forward, one back to the activations, one to the parameters. Activations alone
    therefore need a single pass where parameters need two.

    Attributes:
        back: passes of one vector-Jacobian product, 1 in activation space and 2 in parameter space.
        products: Hessian-vector products.
        vjps: vector-Jacobian products.

    >>> cost = Cost(back=2.0, passes=0.0)
    >>> cost.count_products(10)
    >>> cost.gradients                       # a product with the Hessian of the parameters is two gradients
    20.0
    """

    back: float = 2.0
    products: int = 0
    vjps: int = 0
    passes: float = PREPARED

    def spend(self, backwards: float) -> None:
        """Add work, counted in vector-Jacobian products."""
        self.passes += self.back * backwards

    def count_vjps(self, m: int) -> None:
        """m vector-Jacobian products."""
        self.vjps += m
        self.spend(m)

    def count_products(self, m: int, through: float = 1.0) -> None:
        """m products with the whole matrix.

        In parameter space twice back through the gradient's backward half and once through the other; without
        gradients of weights once through each. ``through`` is the share of the network that a product passes.
        """
        self.products += m
        self.spend((3.0 if self.back > 1 else 2.0) * through * m)

    @property
    def gradients(self) -> float:
        """In gradient-equivalents, one forward and one backward pass each."""
        return self.passes / 3.0
