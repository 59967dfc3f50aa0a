"""`grade list`: the lessons of this course."""

from __future__ import annotations

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List the lessons of this course, with their exercises and points."""
    from grader.cli.courses import open_course

    course = open_course()
    click.echo(course.title)
    for lesson in course.lessons:
        due = f", due {lesson.due:%Y-%m-%d %H:%M}" if lesson.due else ""
        click.echo(f"\n{lesson.id}  {lesson.title} ({lesson.points:g} points{due})")
        for exercise in lesson.exercises:
            click.echo(f"  {exercise.name:<18}{exercise.points:>5g} points")
    click.echo("\nGrade one with: grade LESSON")
