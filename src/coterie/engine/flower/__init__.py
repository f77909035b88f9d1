"""Real federation: the simulator's client step on nodes that are processes of their own, carried by Flower.

`wire` is what crosses the network, `node` and `store` one trust domain, `coordinator` and `ledger` the server, `secure`
the sum that shows nobody's part; none of these knows Flower. `apps` and `processes` carry them over it.
"""
