"""How degenerate a direction is: KL order, Fisher spectrum, rates, gauges, crossings."""
