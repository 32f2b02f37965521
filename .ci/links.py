"""Every relative link in a Markdown page leads to a file of the repository."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
skipped = {"target", "node_modules"}
pages = [page for page in root.rglob("*.md") if not skipped & set(page.relative_to(root).parts)]
broken = []
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path = target.split("#")[0]
        if path and "://" not in path and not (page.parent / path).exists():
            broken.append(f"{page.relative_to(root)}: {target}")
print(f"{len(pages)} pages, {len(broken)} broken links")
sys.exit("\n".join(broken) or None)
