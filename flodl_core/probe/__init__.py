"""What a machine has, what it reaches, and what a job would gain from several devices."""
