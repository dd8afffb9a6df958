"""Which samples: permutation, pools, plans, accounts, and the rank-side pacer. Pure."""
