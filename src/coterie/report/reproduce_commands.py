"""`coterie reproduce`: a paper's tables and figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def reproduce(
    paper: Annotated[str, typer.Argument(help="fedrap, federank or gpfedrec.")],
    table: Annotated[list[str] | None, typer.Option(help="A table's number, repeatable.")] = None,
    figure: Annotated[list[str] | None, typer.Option(help="A figure's number, repeatable.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="A row by its name in the tables, repeatable.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="A data set of the paper, repeatable; default: all.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs for each row.")] = 1,
    protocol: Annotated[str, typer.Option(help="both, paper or clean.")] = "both",
    out: Annotated[Path | None, typer.Option(help="Folder of records and page; default papers/NAME.")] = None,
    cache: Annotated[Path, typer.Option(help="Folder of runs; what is in it is not run again.")] = Path(
        "runs/reproduce"
    ),
    jobs: Annotated[int | None, typer.Option(help="Runs side by side; default: one for each core.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of named data sets; default $COTERIE_DATA.")] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing: records of what the cache holds.")] = False,
    reuse: Annotated[
        list[Path] | None, typer.Option(help="Folder of runs made elsewhere, taken where they fit; repeatable.")
    ] = None,
    add_seeds: Annotated[
        bool, typer.Option("--add-seeds", help="Do not run seeds again that are on record, of the same code.")
    ] = False,
    pages: Annotated[bool, typer.Option("--pages", help="Only make the page again from the records.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only list tables and figures, and what each would take.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but the result.")] = False,
) -> None:
    """Run what a paper's tables and figures need; published, paper's protocol and clean side by side."""
    from coterie.report import reproduce as papers

    if pages:
        from coterie.report.pages import write_page
        from coterie.report.plan import read_paper

        print(write_page(read_paper(paper), Path("papers") / paper if out is None else out))
        return
    asked: dict[str, Any] = dict(
        tables=table or (), figures=figure or (), rows=row or (), data=data or (), seeds=seeds, protocol=protocol,
        out=out, cache=cache, data_dir=data_dir, reuse=reuse or (), add_seeds=add_seeds,
    )  # fmt: skip
    if plan:
        print(papers.outlook(paper, **asked))
        return
    written = papers.reproduce(paper, **asked, jobs=jobs, collect=collect, quiet=quiet)
    print("\n".join(str(path) for path in written))
