"""Run a program on N ranks and learn what each of them did. Knows nothing of grading."""
