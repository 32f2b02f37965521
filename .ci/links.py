"""Every relative link in a Markdown page leads to a file of the repository, and every anchor to a heading."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
skipped = {"target", "node_modules"}
pages = [page for page in root.rglob("*.md") if not skipped & set(page.relative_to(root).parts)]


def anchors(page, known={}):
    """The anchors of the headings of a page, as GitHub makes them."""
    if page not in known:
        text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        seen = {}
        known[page] = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
        for heading in re.findall(r"^#{1,6} +(.+?)\s*$", text, flags=re.M):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
            count = seen[anchor] = seen.get(anchor, -1) + 1
            known[page].add(f"{anchor}-{count}" if count else anchor)
    return known[page]


broken = []
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        missing = not linked.exists() or anchor and linked.suffix == ".md" and anchor not in anchors(linked)
        if missing:
            broken.append(f"{page.relative_to(root)}: {target}")
print(f"{len(pages)} pages, {len(broken)} broken links")
sys.exit("\n".join(broken) or None)
