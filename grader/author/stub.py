"""The stub that learners edit, made from the solution: one source for both.

In the solution a comment pair marks each region that learners write themselves:

    # solution: 3. Send everything that the module holds from rank `src` to all others.
    ...
    # end

In the stub the region becomes `# TODO 3: …` and a `raise NotImplementedError`. A region
without a sentence (`# solution` alone) is left out altogether.

    python -m grader.author.stub        makes every stub of the course again
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

_BEGIN = re.compile(r"^(\s*)# solution(?:: (?:(\d+)\. )?(.+))?$")
_END = re.compile(r"^\s*# end$")


class StubError(Exception):
    """The solution's markers do not fit together; the text says in which file and line."""


@dataclass
class _Region:
    line: int
    indent: str
    number: str | None
    sentence: str | None


def make_stub(solution: str, name: str) -> str:
    """The stub of a solution. `name` is its path, for errors.

    Raises:
        StubError: a region is never closed, closed without being open, or nested.
    """
    lines: list[str] = []
    region: _Region | None = None
    for number, line in enumerate(solution.splitlines(), start=1):
        begin = _BEGIN.match(line)
        if begin and region:
            raise StubError(
                f"{name}:{number}: a region begins inside the one that begins at line "
                f"{region.line}; close that first with `# end`"
            )
        if begin:
            region = _Region(number, begin[1], begin[2], begin[3])
            lines += _todo(region)
        elif _END.match(line):
            if region is None:
                raise StubError(f"{name}:{number}: `# end` closes nothing; no region is open")
            region = None
        elif region is None:
            lines.append(line)
    if region is not None:
        raise StubError(f"{name}:{region.line}: this region is never closed with `# end`")
    return _tidy(lines)


def _todo(region: _Region) -> list[str]:
    if region.sentence is None:
        return []
    title = f"TODO {region.number}" if region.number else "TODO"
    return [
        f"{region.indent}# {title}: {region.sentence}",
        f'{region.indent}raise NotImplementedError("{title}")',
    ]


def _tidy(lines: list[str]) -> str:
    """Without the blank lines that a region left out has left behind."""
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).rstrip() + "\n"
    return re.sub(r"\n{3,}(?=[ \t])", "\n\n", text)


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


if __name__ == "__main__":
    for path in write_stubs(Path.cwd()):
        print(f"made {path}", file=sys.stderr)
