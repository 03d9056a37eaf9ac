"""Checks parsed JSON against a schema of bench/: the part of JSON Schema (draft 2020-12) that these schemas use.

Readers of results need no package for it. A test holds that the package jsonschema says the same of thousands of
changed files."""

import json
import operator
import re
from functools import lru_cache, reduce

from fa_tools.tools import SCHEMA, Refused, read_json

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and (
        isinstance(value, int) or isinstance(value, float) and value.is_integer()),
}


class Violation(Exception):
    """One sentence about a place in a file."""


def clip(value):
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def key(name):
    return f"'{clip(name)[1:-1]}'"


def equal(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Schema:
    def __init__(self, root):
        self.root = root
        self.words = [(word, getattr(self, name)) for word, name in (
            ("type", "type"), ("enum", "enum"), ("const", "const"), ("pattern", "pattern"), ("minimum", "bounds"),
            ("maximum", "bounds"), ("exclusiveMinimum", "bounds"), ("multipleOf", "bounds"), ("minLength", "length"),
            ("maxLength", "length"), ("minItems", "length"), ("minProperties", "length"), ("$ref", "ref"),
            ("properties", "members"), ("additionalProperties", "members"), ("propertyNames", "names"),
            ("items", "elements"), ("oneOf", "one_of"), ("anyOf", "one_of"), ("required", "required"),
            ("dependentRequired", "dependent"), ("not", "never"), ("allOf", "all_of"), ("if", "condition"))]
        self.checks_of = {}  # id of a schema within root: its checks

    def check(self, value, schema, where):
        """Raises Violation. Values come before what their absence or presence asks for, so that the cause is named."""
        if schema is True:
            return
        if schema is False:
            raise Violation(f"{where or 'the file'} is not allowed")
        checks = self.checks_of.get(id(schema))
        if checks is None:
            checks = self.checks_of[id(schema)] = list(dict.fromkeys(
                check for word, check in self.words if word in schema))
        for check in checks:
            check(value, schema, where)

    def fits(self, value, schema):
        try:
            self.check(value, schema, "")
        except Violation:
            return False
        return True

    # --- one method for the words that belong together; each passes what its words do not apply to

    def type(self, value, schema, where):
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(TYPES[kind](value) for kind in kinds):
            raise Violation(f"{where or 'the file'} is {clip(value)}, not of type {' or '.join(kinds)}")

    def enum(self, value, schema, where):
        if not any(equal(value, each) for each in schema["enum"]):
            raise Violation(f"{where} is {clip(value)}, not one of {', '.join(map(str, schema['enum']))}")

    def const(self, value, schema, where):
        if not equal(value, schema["const"]):
            raise Violation(f"{where} is {clip(value)}, not {json.dumps(schema['const'])}")

    def pattern(self, value, schema, where):
        if isinstance(value, str) and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            raise Violation(f"{where} is {clip(value)}, not what the schema describes")

    def bounds(self, value, schema, where):
        if not TYPES["number"](value):
            return
        if value < schema.get("minimum", value) or value > schema.get("maximum", value) \
                or "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"] \
                or "multipleOf" in schema and value % schema["multipleOf"]:
            raise Violation(f"{where} is {clip(value)}, not what the schema describes")

    def length(self, value, schema, where):
        words = {str: ("minLength", "maxLength"), list: ("minItems", ""), dict: ("minProperties", "")}
        least, most = words.get(type(value), ("", ""))
        if least and not schema.get(least, 0) <= len(value) <= schema.get(most, len(value)):
            raise Violation(f"{where} is {clip(value)}, not what the schema describes")

    def ref(self, value, schema, where):
        self.check(value, reduce(operator.getitem, schema["$ref"].removeprefix("#/").split("/"), self.root), where)

    def members(self, value, schema, where):
        if not isinstance(value, dict):
            return
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in known:
                self.check(member, known[name], f"{where}.{name}" if where else name)
            elif other is False:
                raise Violation(f"{where or 'the file'} has the unknown key {key(name)}")
            elif other is not True:
                self.check(member, other, f"{where}.{name}" if where else name)

    def names(self, value, schema, where):
        for name in value if isinstance(value, dict) else ():
            if not self.fits(name, schema["propertyNames"]):
                raise Violation(f"{where} has the key {key(name)}, which does not belong there")

    def elements(self, value, schema, where):
        first = schema.get("prefixItems", [])
        for i, element in enumerate(value if isinstance(value, list) else ()):
            self.check(element, first[i] if i < len(first) else schema["items"], f"{where}[{i}]")

    def one_of(self, value, schema, where):
        branches, said = schema.get("oneOf", schema.get("anyOf")), []
        for branch in branches:
            try:
                self.check(value, branch, where)
            except Violation as problem:
                said.append(str(problem))
        if len(said) == len(branches):
            # What a branch says that was meant; "is a, not b" is said of the others.
            raise Violation(min(said, key=lambda sentence: bool(re.search(r' is "\w+", not "', sentence))))
        if "oneOf" in schema and len(said) < len(branches) - 1:
            raise Violation(f"{where} is several things at once")

    def required(self, value, schema, where):
        for name in schema["required"] if isinstance(value, dict) else ():
            if name not in value:
                raise Violation(f"{where or 'the file'} lacks '{name}'")

    def dependent(self, value, schema, where):
        for name, needs in schema["dependentRequired"].items():
            if isinstance(value, dict) and name in value:
                self.required(value, {"required": needs}, where)

    def never(self, value, schema, where):
        if self.fits(value, schema["not"]):
            name = next(iter(schema["not"].get("required", ["something"])))
            raise Violation(f"{where or 'the file'} has '{name}', which does not go with its status, back end or schema "
                            "version")

    def all_of(self, value, schema, where):
        for each in schema["allOf"]:
            self.check(value, each, where)

    def condition(self, value, schema, where):
        branch = "then" if self.fits(value, schema["if"]) else "else"
        if branch in schema:
            self.check(value, schema[branch], where)


@lru_cache(maxsize=None)
def _read(path):
    return Schema(read_json(path))


def check(data, path=SCHEMA):
    """Refused, with one sentence, unless the data are what the schema in this file describes."""
    schema = _read(path)
    try:
        schema.check(data, schema.root, "")
    except Violation as problem:
        raise Refused(f"is invalid: {problem}") from None
