"""What a watch is made of: its arguments, the steps it counts, its ranks, how it ends, and what it has seen."""

# for other packages of netvitals, not public
from netvitals.watching.api import Watch as Watch
from netvitals.watching.api import watch as watch
from netvitals.watching.arguments import together as together
