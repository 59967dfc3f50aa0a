"""`make bench`: what a learner waits for, measured in one run on one machine."""
