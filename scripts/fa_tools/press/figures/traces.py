"""Timelines of one CTA. Programs write them (--trace) in the Trace Event Format, which https://ui.perfetto.dev opens: one
event per slice. What is kept in bench/results/h200_timelines.jsonl says the same in a tenth of the characters:

  kinds    what slices have in common: name, unit, the statement of the source, bytes, FLOPs, wavefronts
  rows     one per warp or unit; `slices` has three numbers per slice: cycles since the end of the slice before, cycles that
           it lasts, its place in `kinds`
  arrows   what ended a wait: its name, then the row and the cycle in which it begins and in which it ends"""

from fa_tools.tools import Refused, read_json

VERSION = 1
NO_TRACE = "is not a trace that a program of this repository wrote with --trace"


def compact(trace):
    """The kept form of a trace as a program wrote it."""
    groups, rows, kinds, begun, arrows = {}, {}, {}, {}, []
    for event in trace["traceEvents"]:
        where = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "process_name":
            groups[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            rows[where] = {"group": groups[event["pid"]], "name": event["args"]["name"], "slices": [], "end": 0}
        elif event["ph"] == "X":
            row = rows[where]
            kind = tuple({"name": event["name"], "unit": event["cat"], **event["args"]}.items())
            row["slices"] += event["ts"] - row["end"], event["dur"], kinds.setdefault(kind, len(kinds))
            row["end"] = event["ts"] + event["dur"]
        elif event["ph"] == "s":
            begun[event["id"]] = where, event["ts"]
        elif event["ph"] == "f":
            number, (start, since) = list(rows).index, begun[event["id"]]
            arrows.append([event["name"], number(start), since, number(where), event["ts"]])
    return {"timeline_version": VERSION, **trace["otherData"], "kinds": [dict(kind) for kind in kinds],
            "rows": [{key: row[key] for key in ("group", "name", "slices")} for row in rows.values()], "arrows": arrows}


def expand(kept):
    """The trace as a program wrote it, for Perfetto; events of one row follow one another."""
    about = {key: value for key, value in kept.items() if key not in ("timeline_version", "kinds", "rows", "arrows")}
    events, places, slices = [], [], []
    for row in kept["rows"]:
        process, thread = places[-1] if places else (0, 0)
        first = not places or kept["rows"][len(places) - 1]["group"] != row["group"]
        process, thread = (process + 1, 1) if first else (process, thread + 1)
        places.append((process, thread))
        for key, value, what in ((("name", row["group"], "process"),) * first + (("sort_index", process, "process"),) * first +
                                 (("name", row["name"], "thread"), ("sort_index", thread, "thread"))):
            events.append({"ph": "M", "pid": process, "tid": thread, "name": f"{what}_{key}", "args": {key: value}})
        at, numbers = 0, row["slices"]
        for gap, cycles, kind in zip(numbers[::3], numbers[1::3], numbers[2::3]):
            args = dict(kept["kinds"][kind])
            name, unit = args.pop("name"), args.pop("unit")
            slices.append({"ph": "X", "pid": process, "tid": thread, "ts": at + gap, "dur": cycles, "name": name, "cat": unit,
                           "args": args})
            at += gap + cycles
    events += slices
    for i, (name, start, since, end, until) in enumerate(kept["arrows"], 1):
        for phase, row, time in (("s", start, since), ("f", end, until)):
            event = {"ph": phase, "id": i, "pid": places[row][0], "tid": places[row][1], "ts": time, "name": name,
                     "cat": "ends a wait"}
            events.append({**event, "bp": "e"} if phase == "f" else event)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def load(path):
    """A trace in the Trace Event Format, from either form. Raises Refused if the file is neither."""
    data = read_json(path)
    try:
        if "timeline_version" not in data:
            return data
        if data["timeline_version"] != VERSION:
            raise Refused(f"has timeline version {data['timeline_version']}, but this checkout reads {VERSION}")
        return expand(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise Refused(NO_TRACE) from None
