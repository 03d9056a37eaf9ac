"""Says what is to be measured before a release: kernels of which committed records are stale, because the kernel has changed
since, or do not say what they measured, and what a card's set lacks. Nothing may wait in kernels/next either.

A file that has a kernel beside variants of it which were not kept cannot be measured again. It stays as it is, and documents
mark its figures (†)."""

from fa_tools.cards import cards
from fa_tools.measuring import measure
from fa_tools.records import is_stale, kept_records, short_name, todays_source
from fa_tools.tools import ROOT, Parser, relative

EXAMPLE = """example:
  scripts/fa release --check      before a release; CI does not ask for it

Exit code: 0 nothing is in the way or --check was not given, 1 something is, 2 a file cannot be read."""


def obstacles():
    """One sentence for each file and what is wrong with records in it, each card that lacks some, and each kernel in kernels/next."""
    runs, found = {}, {}
    for file, record in kept_records():
        runs.setdefault(file, []).append(record)
    for file, records in runs.items():
        there = {short_name(record["kernel"]) for record in records if todays_source(record)}
        gone = [record for record in records if not todays_source(record)]
        if any(short_name(record["kernel"]) in there for record in gone):  # variants
            continue
        for which, some in (("that are not there any more", gone), ("that have changed since", filter(is_stale, records)),
                            ("without their source", (record for record in records if "source" not in record))):
            for record in some:
                found.setdefault((file.partition("#")[0], which), set()).add(record.get("solution", record["kernel"]))
    for (file, which), names in found.items():
        yield f"{relative(file)} has kernels {which}: {', '.join(sorted(names))}"
    for card in cards():
        if new := measure.new_to(card):
            yield f"bench/results/{card} has nothing of {', '.join(measure.known()[number] for number in new)}"
        if lacking := measure.incomplete(card):
            yield f"bench/results/{card} lacks {', '.join(lacking)}"
    for path in sorted((ROOT / "kernels" / "next").glob("*.cu")):
        yield f"{relative(path)} has not replaced its namesake"


def main(argv=None):
    parser = Parser("release", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="exit code 1 if something is in the way")
    args = parser.parse_args(argv)
    found = list(obstacles())
    print("\n".join(found) or "Nothing is to be measured again.")
    return 1 if found and args.check else 0
