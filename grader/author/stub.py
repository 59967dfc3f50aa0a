"""The stub that learners edit, made from the solution: one source for both.

In the solution a comment pair marks each region that learners write themselves:

    # solution: 3. Send everything that the module holds from rank `src` to all others.
    ...
    # end

In the stub the region becomes `# TODO 3: …` and a `raise NotImplementedError` that names the
TODO and the function. A region without a sentence (`# solution` alone) is left out altogether.

    python -m grader.author.stub        makes every stub of the course again
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

_BEGIN = re.compile(r"^(\s*)# solution(?:: (?:(\d+)\. )?(.+))?$")
_END = re.compile(r"^\s*# end$")
_DEFINITION = re.compile(r"^(\s*)(?:class|def|async def) (\w+)")


class StubError(Exception):
    """The solution's markers do not fit together; the text says in which file and line."""


@dataclass(frozen=True)
class _Region:
    line: int
    indent: str
    number: str | None
    sentence: str | None

    def todo(self, owner: str) -> list[str]:
        """The lines that stand in the stub instead; `owner` is the function they are in."""
        if self.sentence is None:
            return []
        title = f"TODO {self.number}" if self.number else "TODO"
        message = f"{title}: {owner} is not written yet"
        return [
            f"{self.indent}# {title}: {self.sentence}",
            f'{self.indent}raise NotImplementedError("{message}")',
        ]


def make_stub(solution: str, name: str) -> str:
    """The stub of a solution. `name` is its path, for errors.

    Raises:
        StubError: a region is never closed, closed without being open, or nested.
    """
    stub: list[str] = []
    scopes: list[tuple[int, str]] = []
    region: _Region | None = None
    is_behind_a_gap = False
    for number, line in enumerate(solution.splitlines(), start=1):
        begin = _BEGIN.match(line)
        if begin and region:
            raise StubError(
                f"{name}:{number}: a region begins inside the one that begins at line "
                f"{region.line}; close that first with `# end`"
            )
        if begin:
            region = _Region(number, begin[1], begin[2], begin[3])
            stub += region.todo(_owner(scopes, len(region.indent)))
        elif _END.match(line):
            if region is None:
                raise StubError(f"{name}:{number}: `# end` closes nothing; no region is open")
            # The blank lines before a region that was left out are enough for what follows.
            is_behind_a_gap = region.sentence is None
            region = None
        elif region is None and (line.strip() or not is_behind_a_gap):
            is_behind_a_gap = False
            stub.append(line)
            _enter(scopes, line)
    if region is not None:
        raise StubError(f"{name}:{region.line}: this region is never closed with `# end`")
    return "\n".join(stub).rstrip() + "\n"


def _enter(scopes: list[tuple[int, str]], line: str) -> None:
    """Keep `scopes`, the classes and functions around a line, up to date at a definition."""
    definition = _DEFINITION.match(line)
    if definition:
        indent = len(definition[1])
        scopes[:] = [scope for scope in scopes if scope[0] < indent]
        scopes.append((indent, definition[2]))


def _owner(scopes: list[tuple[int, str]], indent: int) -> str:
    """`function` or `Class.method` around a line that is indented by `indent`."""
    return ".".join(name for depth, name in scopes if depth < indent) or "this part"


def write_stubs(root: Path) -> list[Path]:
    """Make every lesson's stub in the course at `root` again; gives the files that changed."""
    changed = []
    for solution in sorted((root / "solutions").glob("*/*.py")):
        stub = root / "exercises" / solution.parent.name / solution.name
        made = make_stub(solution.read_text(encoding="utf-8"), str(solution))
        if not stub.exists() or stub.read_text(encoding="utf-8") != made:
            stub.write_text(made, encoding="utf-8")
            changed.append(stub)
    return changed


def main() -> None:
    """Make the stubs of the course in the current folder."""
    try:
        changed = write_stubs(Path.cwd())
    except StubError as error:
        sys.exit(f"no stub was made: {error}")
    for path in changed:
        print(f"made {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
