"""How the values between a network's operators lie in memory.

In the order in which to read: what a user may ask for (`wanted`); what a `layout` is, and how constants are brought
into it (`packing`); the `kernels` that only layouts need; what each of the `operators` can do; the cheapest `choice`;
a whole `network` laid out; its `variants`, whose tasks compete, with what `moves` cost; and the `sketch` by which
MetaSchedule's searches tune blocked convolutions.
"""
