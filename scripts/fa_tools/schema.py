"""Checks parsed JSON against a schema of bench/, with the package jsonschema. Readers of results do without it where .venv is
not set up; `scripts/fa validate` does not."""

import site
from functools import lru_cache

from fa_tools.tools import ROOT, SCHEMA, Refused, read_json


@lru_cache(maxsize=None)
def _jsonschema():
    """The package, or None. Loaded only here: most commands read no results, and it takes a tenth of a second."""
    for where in (None, *ROOT.glob(".venv/lib/python3*/site-packages")):
        if where:
            site.addsitedir(str(where))
        try:
            import jsonschema
            return jsonschema
        except ImportError:
            pass
    return None


@lru_cache(maxsize=None)
def _validator(path):
    return _jsonschema().Draft202012Validator(read_json(path))


def _cause(problem):
    """Of a choice between forms, what is wrong with the form that the file names."""
    while problem.context:
        others = {each.schema_path[0] for each in problem.context if each.validator == "const"}
        meant = [each for each in problem.context if each.schema_path[0] not in others]
        if not meant:
            break
        problem = meant[0]
    return problem


def check(data, path=SCHEMA):
    """Refused, with one sentence, unless the data are what the schema in this file describes."""
    problems = list(_validator(path).iter_errors(data)) if _jsonschema() else []
    if problems:
        problem = _cause(max(problems, key=_jsonschema().exceptions.relevance))
        place = problem.json_path.removeprefix("$").removeprefix(".") or "the file"
        said = problem.message
        if problem.validator == "not":
            said = f"'{problem.validator_value.get('required', ['something'])[0]}' does not go with its status, back end or version"
        elif problem.validator in ("anyOf", "oneOf"):
            said = "this is none of what the schema describes"
        raise Refused(f"is invalid: {place}: {said if len(said) < 200 else said[:90] + ' ... ' + said[-90:]}")
