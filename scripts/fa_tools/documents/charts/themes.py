"""One SVG of a chart for readers of light and of dark pages: Vega-Lite draws it twice, and what differs becomes a style
sheet. Groups and attributes that show nothing are left out."""

import re
from collections import Counter
from xml.etree import ElementTree

from fa_tools.documents.charts.look import DARK, LIGHT
from fa_tools.documents.figures.drawing import dark_style, number

SVG = "{http://www.w3.org/2000/svg}"
COLORS = ("fill", "stroke")
# Attributes that a group can say once for all that is in it.
INHERITED = ("fill", "stroke", "stroke-width", "font-size", "font-weight", "text-anchor")
NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
MOVE = re.compile(r"translate\(([^,()]+),([^,()]+)\)")
ElementTree.register_namespace("", SVG[1:-1])


def read(svg):
    """The root, without what is said for screen readers, which take the chart as an image with a title. The numbers of
    Vega's clip paths depend on what was drawn before."""
    names = {}
    svg = re.sub(r"\bclip\d+\b", lambda match: names.setdefault(match[0], f"clip{len(names)}"), svg)
    root = ElementTree.fromstring(svg)
    for node in root.iter():
        for name in [name for name in node.keys() if name.startswith("aria-") or name in ("role", "pointer-events")]:
            del node.attrib[name]
    return root


def both(light, dark):
    """Colours of two drawings that are alike otherwise: {(attribute, light): dark}, and the classes of those elements of
    the first that have another dark colour than most."""
    pairs = list(zip(light.iter(), dark.iter(), strict=True))
    for a, b in pairs:
        if (a.tag, a.text) != (b.tag, b.text) or any(a.get(name) != b.get(name) for name in {*a.keys(), *b.keys()} - {*COLORS}):
            raise ValueError(f"the themes differ in more than colours: {a.text or a.attrib} and {b.text or b.attrib}")
    count = Counter((name, a.get(name), b.get(name)) for a, b in pairs for name in COLORS if a.get(name) not in (None, "none"))
    usual, classes = {}, {}
    for (name, first, second), _ in count.most_common():
        usual.setdefault((name, first), second)
    for a, b in pairs:
        a.attrib.pop("class", None)
        for name in COLORS:
            other = b.get(name)
            if usual.get((name, a.get(name)), other) != other:
                a.set("class", f"{a.get('class', '')} {name}-{other.lstrip('#')}".strip())
                classes[f".{name}-{other.lstrip('#')}"] = name, other
    return usual, classes


def shows_nothing(node):
    if node.tag == SVG + "g":
        return not len(node)
    return node.tag == SVG + "path" and (node.get("display") == "none" or not node.get("d")
                                         or not {*node.keys()} - {"d", "class"})


def shorten(node):
    """The same drawing in fewer words."""
    for name, value in list(node.items()):
        if (name, value) in (("opacity", "1"), ("stroke-dasharray", "1,0"), ("transform", "translate(0,0)")):
            del node.attrib[name]
        else:
            node.set(name, NUMBER.sub(lambda match: number(float(match[0])), value))
    children = []
    for child in list(node):
        shorten(child)
        node.remove(child)
        if node.tag == SVG + "clipPath" or not shows_nothing(child):
            children += list(child) if child.tag == SVG + "g" and not child.attrib else [child]
    node.extend(children)
    move = MOVE.fullmatch(node.get("transform", ""))
    if node.tag == SVG + "text" and move and not {"x", "y"} & {*node.keys()}:
        del node.attrib["transform"]
        node.attrib.update(x=move[1], y=move[2])
    if node.tag == SVG + "g" and len(node) > 1:
        for name in INHERITED:
            values = {child.get(name) for child in node}
            if len(values) == 1 and None not in values and not any(child.get("class") for child in node):
                node.set(name, *values)
                for child in node:
                    del child.attrib[name]


def on_phones(spec_of):
    return lambda theme: spec_of(theme._replace(phone=True))


def one_svg(vl, spec_of):
    """The chart as bytes. spec_of: the Vega-Lite spec by theme."""
    light, dark = (read(vl.vegalite_to_svg(spec_of(theme), vl_version="5.20")) for theme in (LIGHT, DARK))
    usual, classes = both(light, dark)
    shorten(light)
    fonts = {node.attrib.pop("font-family") for node in light.iter() if node.get("font-family")}
    if len(fonts) > 1:
        raise ValueError(f"a chart has the fonts {', '.join(sorted(fonts))}")
    light.attrib.update({"font-family": name for name in fonts}, role="img")
    title = spec_of(LIGHT)["title"]["text"]
    ElementTree.SubElement(light, SVG + "title").text = title if isinstance(title, str) else " ".join(title)
    light.insert(0, light[-1])
    del light[-1]
    text = ElementTree.tostring(light, encoding="unicode").replace(" />", "/>")
    style = dark_style(usual, classes)
    return text.replace("</title>", f"</title>\n{style}\n", 1).encode() + b"\n"
