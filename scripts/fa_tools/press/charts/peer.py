"""How much of a peer's speed the kernels reach, over the sequence length."""

import statistics

from fa_tools.press.charts.lengths import how, line_chart, problem_of
from fa_tools.records import display, kind, passed


def speed_over(record, peer):
    """Speed over the peer's on the same problem: the median of the ratios within rounds, where there are any."""
    ratio = record.get("ratio", {}).get(peer["kernel"])
    if ratio is None:
        mine, theirs = record.get("round_ms", []), peer.get("round_ms", [])
        if mine and len(mine) == len(theirs) and record["run"] == peer["run"]:
            ratio = statistics.median(b / a for a, b in zip(mine, theirs))
        else:
            ratio = peer["time_ms"]["median"] / record["time_ms"]["median"]
    return ratio


def without_maker(peer):
    return peer.get("library", {}).get("implementation", peer["kernel"])


def percents(records, peers):
    """Records with `percent` of the peer on the same problem, of the peer's run only; `peers`: seq_len to record."""
    rows = []
    for record in records:
        peer = peers.get(record["seq_len"])
        measured = peer and record is not peer and passed(record) and kind(record["kernel"]) != "ceiling"
        if measured and record["run"] == peer["run"]:
            rows.append({**record, "percent": 100 * speed_over(record, peer)})
    return rows


def peer_length_chart(gpu, rows, peer, theme):
    title = f"Percent of {without_maker(peer)} on {gpu}"
    notes = [problem_of(rows) + "; ratios within rounds" * ("round_ms" in peer), how(rows)]
    return line_chart(rows, theme, "percent", title, f"% of the speed of {display(peer)}", notes, rule=100)
