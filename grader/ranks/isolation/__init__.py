"""Isolation of a run: layers between a submission and everything else.

The order, by process. Each step skips what `Support` says does not work, and raises
`LayerFailed` when something that worked when it was tried does not work now.

* zygote, before it imports torch: `probe.probe()` → `Support`, `paths.readable(...)`; then,
  once, `confine.restrict_ports(support)`.
* leader, after fork: setsid, `privileges.die_with_parent`, `privileges.adopt_orphans`,
  `privileges.be_killed_first`, `uids.claim` (as root), `limits.own_bytes`,
  `namespaces.enter(support)`, fork init before anything else, `privileges.hide_memory`.
* init: `privileges.die_with_parent`, `root.build(support, plan)`, `init.prepare(support)`,
  what it makes in the scratch, fork the ranks, `init.serve(...)`, exit.
* rank: standard streams, `privileges.close_descriptors`, chdir to its scratch, environment,
  all that it will need to import; then `confine.confine(support, plan)`; then the submission.
* leader: at the deadline or the end, `init.END` to init; when init has not ended soon after,
  SIGKILL; reap it; without a pid namespace `init.kill_descendants()`, and as root
  `init.kill_user(uid)`.

`levels` tells people what it all amounts to. `layers`, `levels` and `probe` can be imported
anywhere; the rest needs Linux. Nothing here imports torch or the rest of the grader.
"""
