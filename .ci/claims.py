"""A row of a table in README.md that links to a section of docs/ has no number that the section lacks."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w|\.\d)")


def numbers(text):
    """The numbers of a text as they are written, without separators of thousands. H200 and `16x0` are names."""
    return {number.replace(",", "") for number in NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text))}


def section(page, anchor):
    """The text from the heading with this anchor to the next of the same rank; the page without an anchor."""
    text, found, code = "", 0 if anchor else 1, False
    for line in page.read_text(encoding="utf-8").splitlines():
        code ^= line.startswith("```")
        heading = re.match(r"(#+) +(.+)", line)
        if heading and anchor and not code:
            rank, title = len(heading[1]), re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).strip().lower()
            if re.sub(r"[^\w\- ]", "", title).replace(" ", "-") == anchor:
                found = rank
            elif found and rank <= found:
                break
        text += line + "\n" if found else ""
    return text


rows, claims, missing = 0, 0, []
for line in (root / "README.md").read_text(encoding="utf-8").splitlines():
    links = re.findall(r"\]\((docs/[^)#\s]+\.md)#?([^)\s]*)\)", line)
    if line.startswith("|") and links:
        known = set().union(*(numbers(section(root / path, anchor)) for path, anchor in links))
        rows, claims = rows + 1, claims + len(numbers(line))
        lacking = sorted(numbers(line) - known)
        if lacking:
            missing.append(f"{', '.join(lacking)}: not in {' or '.join('#'.join(link) for link in links)}\n  {line}")
print(f"{claims} numbers in {rows} rows of README.md, {len(missing)} rows with numbers of their own")
sys.exit("\n".join(missing) or None)
