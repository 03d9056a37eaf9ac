"""Whose results are where: bench/results has a folder for each GPU, called by its card, and one for the emulator."""

import re

from fa_tools.tools import RESULTS, ROOT, Refused, read_set

BOOK = "h200"  # the card whose figures the documents quote where they name none
EMULATOR = "emulator"
NO_CARDS = EMULATOR, "from_readers"  # folders that are not ours of one GPU
LEFT_OUT = re.compile(r"NVIDIA|Tesla|GeForce|GPU|Generation|SXM\d*|HBM\w*|\d+GB")


def card_of(gpu):
    """The folder of a GPU, by the name that its driver reports: h100 of NVIDIA H100 80GB HBM3, rtx4090 of NVIDIA GeForce RTX 4090."""
    words = re.findall(r"[A-Za-z0-9]+", gpu.partition(" (")[0])
    return "".join(word for word in words if not LEFT_OUT.fullmatch(word)).lower()


def gpu_of(data):
    """The name of the GPU that a file of results, a profile or a recorded timeline is of; None of the emulator's."""
    found = data.get("machine", data.get("recorded", data)).get("gpu")
    return found and found.partition(" (")[0]


def cards(folder=RESULTS):
    """The cards that have results, the book's first."""
    found = {path.parent.name for path in folder.glob("*/*.json*")} - {*NO_CARDS}
    return sorted(found, key=lambda card: (card != BOOK, card))


def card_named(word):
    """A card that has results, by its folder or the name of its GPU; Refused if there is none."""
    if card_of(word) not in cards():
        raise Refused(f"there are no results of {word} in bench/results; there are those of {', '.join(cards())}")
    return card_of(word)


def file_named(word):
    """The results file that a word names, seen from the checkout, or None: peers/under_load of the book's card, h100:peers/under_load of
    another, emulator:counts/d128, and machines, which is bench/machines.json."""
    parts = re.fullmatch(r"(?:(\w+):)?([\w-]+)(?:/(.*))?", word)
    if parts is None:
        return None
    card, file, name = parts.groups()
    place = f"bench/results/{card or BOOK}/{file}"
    if name is not None:
        return f"{place}.jsonl#{name}" if (ROOT / f"{place}.jsonl").exists() else None
    places = [place] if card else [place, f"bench/{file}"]
    return next((f"{place}.json" for place in places if (ROOT / f"{place}.json").exists()), None)


def has_file(card, file):
    """Whether a card has this file, or one of this name in a set: ladder.jsonl#fp16_d64."""
    path, _, name = file.partition("#")
    path = RESULTS / card / path
    return path.exists() and (not name or name in read_set(path))
