"""No cycles between the top-level modules of a crate.

For every crate under crates/ this builds the graph of the modules that its root file declares: a folder is one
module, and an edge a -> b says that code of a names something of b. Tests are left out. Names re-exported at the
crate root count for the module that defines them. Fails with the modules of each cycle, and one use for each edge.

    python3 .ci/cycles.py                              # all crates
    python3 .ci/cycles.py --crate kernels --crate nn   # some of them
"""

import argparse
import bisect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Comments, strings and character literals; lifetimes are none of them.
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n']+|[^\n'\\])'""", re.DOTALL
)


def blanked(text, start, end):
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def matching(text, start, brackets="{}"):
    """Place after the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {brackets[0]: 1, brackets[1]: -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def code_of(path):
    """The code of a file without comments, strings and items for tests; places and lines stay the same."""
    text = path.read_text(encoding="utf-8")
    text = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    while match := re.search(r"#\[cfg\(test\)\]", text):
        end = match.end()
        while attribute := re.match(r"\s*#\[", text[end:]):
            end = matching(text, end + attribute.end() - 1, "[]")
        ends = [place for place in (text.find("{", end), text.find(";", end)) if place >= 0]
        end = min(ends, default=len(text))
        if text[end : end + 1] == "{":
            end = matching(text, end)
            if text[end : end + 1] == ";":  # use crate::{..};
                end += 1
        else:
            end += 1
        text = blanked(text, match.start(), end)
    return text


def split_tree(tree):
    """The parts of a use tree between commas outside of braces."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(tree):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(tree[start:place])
            start = place + 1
    return [part.strip() for part in parts + [tree[start:]] if part.strip()]


def paths_of(tree):
    """All paths of a use tree, as lists of segments; the last one is `name`, `name as other` or `*`."""
    head, brace, rest = tree.partition("{")
    segments = [segment.strip() for segment in head.split("::") if segment.strip()]
    if not brace:
        return [segments]
    inner = rest.rpartition("}")[0]
    return [segments + path for part in split_tree(inner) for path in paths_of(part)]


class Crate:
    def __init__(self, folder):
        self.name = folder.name
        self.root_file = next(f for f in (folder / "src/lib.rs", folder / "src/main.rs") if f.exists())
        self.root = code_of(self.root_file)
        self.modules = {}
        for name in re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", self.root, re.MULTILINE):
            files = [folder / f"src/{name}.rs", *sorted((folder / "src" / name).rglob("*.rs"))]
            self.modules[name] = {f: code_of(f) for f in files if f.exists() and f.stem != "tests" and "tests" not in f.parts}
        self.at_root = self.names_at_root()

    def names_at_root(self):
        """The module that defines each name at the crate root."""
        names = {name: name for name in self.modules}
        for tree in re.findall(r"\buse ([^;]+);", self.root):
            for path in paths_of(tree):
                path = path[1:] if path[0] in ("crate", "self") else path
                if path[0] not in self.modules:
                    continue
                last = path[-1].split(" as ")[-1].strip()
                for name in self.public_names(path[0]) if last == "*" else [last]:
                    names.setdefault(name, path[0])
        for module, files in self.modules.items():
            for text in files.values():
                for name in re.findall(r"#\[macro_export\]\s*macro_rules!\s*(\w+)", text):
                    names.setdefault(name, module)
        return names

    def public_names(self, module):
        item = r"\bpub(?:\([^)]*\))? (?:const |unsafe |async )*(?:fn|struct|enum|trait|type|const|static|mod|union) (\w+)"
        return {name for text in self.modules[module].values() for name in re.findall(item, text)}

    def names_used(self, path, text):
        """`(place, name)` for every name of the crate root that a file uses."""
        relative = path.relative_to(self.root_file.parent).with_suffix("").parts
        depth = len(relative) - (relative[-1] == "mod")
        inline = [
            (match.start(), matching(text, match.end() - 1))
            for match in re.finditer(r"\bmod \w+\s*\{", text)
        ]
        for match in re.finditer(r"\b(crate|super(?:\s*::\s*super)*)\s*::\s*", text):
            if match[1] != "crate":
                levels = depth + sum(start < match.start() < end for start, end in inline)
                if match[1].count("super") != levels:
                    continue
            rest = text[match.end() :]
            if rest.startswith("{"):
                tree = rest[: matching(rest, 0)]
                for parts in paths_of(tree):
                    yield match.start(), parts[0].split(" as ")[0].strip()
            elif name := re.match(r"\w+", rest):
                yield match.start(), name[0]

    def edges(self):
        """`{module: {module: one use}}`."""
        edges = {module: {} for module in self.modules}
        for module, files in self.modules.items():
            for path, text in files.items():
                lines = [match.start() for match in re.finditer("\n", text)]
                for place, name in self.names_used(path, text):
                    target = self.at_root.get(name)
                    if target not in (None, module):
                        line = bisect.bisect(lines, place) + 1
                        edges[module].setdefault(target, f"{path.relative_to(ROOT)}:{line}")
        return edges


def reached(edges, start):
    found, open_ = set(), [start]
    while open_:
        for target in edges[open_.pop()]:
            if target not in found:
                found.add(target)
                open_.append(target)
    return found


def cycles(edges):
    """The strongly connected components of more than one module."""
    reach = {module: reached(edges, module) for module in edges}
    components = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in edges
        if module in reach[module]
    }
    return sorted(components)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crate", action="append", help="check this crate only (repeatable)")
    wanted = parser.parse_args().crate
    folders = sorted(manifest.parent for manifest in (ROOT / "crates").glob("*/Cargo.toml"))
    if wanted:
        unknown = set(wanted) - {folder.name for folder in folders}
        if unknown:
            sys.exit(f"no crate {', '.join(sorted(unknown))} under crates/")
        folders = [folder for folder in folders if folder.name in wanted]
    failed = False
    for crate in map(Crate, folders):
        edges = crate.edges()
        found = cycles(edges)
        failed |= bool(found)
        print(f"{crate.name}: {len(edges)} modules, {len(found)} cycles")
        for component in found:
            print(f"  cycle: {', '.join(component)}")
            for module in component:
                for target, use in sorted(edges[module].items()):
                    if target in component:
                        print(f"    {module} -> {target} ({use})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
