"""One host's barrier and fold bookkeeping. Pure."""
