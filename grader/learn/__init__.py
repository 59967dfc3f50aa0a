"""What helps a learner beside grading."""
