"""Hosts that the launcher starts on other machines, over ssh, Slurm, Ray or Kubernetes."""
