"""What the site changes in the pages: formulas become MathML, links to pages have their titles, and links out of docs/ lead to
the repository, or nowhere if mkdocs.yml has no repo_url."""

import html
import posixpath
import re

from latex2mathml.converter import convert


def on_page_markdown(markdown, page, config, files, **_):
    folder = posixpath.dirname(page.file.src_uri)

    def link(match):
        text, target = match[1], match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        if path.startswith("../"):
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path[3:]})" if config.repo_url else text
        linked = files.get_file_from_path(path)
        if text.endswith(".md") and linked and linked.page:
            text = linked.page.title
        return f"[{text}]({target})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, markdown)


def on_page_content(content, **_):
    def formula(match):
        display = "block" if match[1] == "div" else "inline"
        formula = convert(html.unescape(match[2]).strip(), display=display)
        # A minus at the beginning, or after an equals sign, a comma or a bracket, is a sign.
        return re.sub(r"(<mrow>|&#x(?:0003D|0002C|00028);</mo>)<mo>&#x02212;", r'\1<mo form="prefix">&#x02212;', formula)

    return re.sub(r'<(div|span) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', formula, content, flags=re.S)
