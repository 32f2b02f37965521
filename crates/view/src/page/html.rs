//! The HTML file: front end and data in one.

use super::PageModel;
use super::block::packed;
use super::encoding::Encoded;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write;

const SCRIPT: &str = include_str!("../../page/dist/page.js");
const STYLE: &str = include_str!("../../page/dist/page.css");
/// Nothing is loaded from anywhere; a live page asks its own server.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; script-src 'unsafe-inline'";
/// Appended for a page with a model, which runs WebAssembly in a worker, both from the page itself.
const PROGRAM_POLICY: &str = " 'wasm-unsafe-eval'; worker-src blob:";

pub(super) fn write(page: &Encoded, model: Option<&PageModel>) -> String {
    let program_policy = model.map_or("", |_| PROGRAM_POLICY);
    let data: usize = page.blocks.iter().map(String::len).sum();
    let mut html = String::with_capacity(SCRIPT.len() + STYLE.len() + page.description.len() + data + 4096);
    let title = escaped(&page.title);
    // Writing to a string does not fail.
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}{program_policy}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}</style>\n<body>\n\
         <noscript>This page needs JavaScript and WebGL 2.</noscript>\n\
         <script id=\"description\" type=\"application/json\">{}</script>\n",
        page.description
    );
    for (index, block) in page.blocks.iter().enumerate() {
        let _ = writeln!(html, "<script id=\"block-{index}\" type=\"text/plain\">{block}</script>");
    }
    if let Some(model) = model {
        let template = model.template.as_deref().unwrap_or_default();
        for (id, text) in [
            ("program", BASE64_STANDARD.encode(&model.program)),
            ("model", packed(&model.file)),
            ("template", packed(template)),
        ] {
            let _ = writeln!(html, "<script id=\"{id}\" type=\"text/plain\">{text}</script>");
        }
    }
    let _ = writeln!(html, "<script>{SCRIPT}</script>\n</body>\n</html>");
    html
}

/// Text between tags.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            letter => safe.push(letter),
        }
    }
    safe
}
