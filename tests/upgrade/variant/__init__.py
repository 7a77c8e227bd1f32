"""This program as the release after it would be: the next version, kept apart from the product.

What such a release may bring is here once: a command in each machine (`Remark` of a queue, `Note`
of the cluster) with its part of the snapshot, a file of another form, a frame between nodes, and
requests that need all that. `install` puts it into this process, before anything of the broker is
imported; `python -m upgrade.variant` runs a node of it.
"""
