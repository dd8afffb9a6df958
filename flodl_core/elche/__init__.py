"""How many batches each rank does between two averages: measure, elect, grow, guard. Pure."""
