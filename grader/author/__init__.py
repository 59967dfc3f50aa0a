"""What helps an author of lessons."""
