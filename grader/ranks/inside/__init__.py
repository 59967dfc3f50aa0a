"""What runs on the untrusted side of the wall: zygote, leader, store and ranks.

Nothing in this package imports the rest of `grader`: a process that will hold a
submission must not have read a check, a solution or an expected value before.
"""
