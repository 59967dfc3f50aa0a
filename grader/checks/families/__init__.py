"""The bank of hypotheses, one module a family: what each misunderstanding would bring."""
