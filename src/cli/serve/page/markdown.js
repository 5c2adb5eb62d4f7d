// Markdown, formulas and code as nodes of the page. A model's output may be hostile, so no text of it is ever parsed as HTML:
// marked only splits it into tokens, this file creates the elements, KaTeX creates those of a formula (MathML), and the page's
// policy (require-trusted-types-for 'script'; trusted-types 'none') makes the browser refuse any other way.
const kLongestFormula = 4000, kLongestPainted = 200000;  // characters; longer formulas and code stay plain
const kTab = "\uE000";                                   // stands for a tab at the start of a line of code, which marked replaces

function mathToken(type, source, patterns) {
  for (const pattern of patterns) {
    const found = pattern.exec(source);
    if (found) return { type, raw: found[0], text: found[1].trim() };
  }
  return undefined;
}
marked.use({
  mangle: false,
  extensions: [
    {
      name: "mathblock", level: "block",
      start: (source) => { const found = /(?:^|\n) {0,3}(?:\$\$|\\\[)/.exec(source); return found ? found.index : -1; },
      tokenizer: (source) => mathToken("mathblock", source, [/^ {0,3}\$\$([^$]{1,4000}?)\$\$[ \t]*(?:\n+|$)/, /^ {0,3}\\\[([\s\S]{1,4000}?)\\\][ \t]*(?:\n+|$)/]),
    },
    {
      // As in pandoc: no space inside of the dollars, no digit after the second, so that prices stay prices.
      name: "math", level: "inline",
      start: (source) => source.search(/\$|\\[([]/),
      tokenizer: (source) => mathToken("math", source, [/^\$\$([^$\n]{1,2000}?)\$\$/, /^\$(?!\s)((?:\\[^\n]|[^\\$\n]){1,1000}?)(?<!\s)\$(?!\d)/,
        /^\\\(([\s\S]{1,2000}?)\\\)/, /^\\\[([\s\S]{1,2000}?)\\\]/]),
    },
  ],
});

const kEntities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", mdash: "—", ndash: "–", hellip: "…", times: "×", deg: "°",
  larr: "←", rarr: "→", le: "≤", ge: "≥", ne: "≠", middot: "·", bull: "•" };
function decode(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,6}));/g, (whole, tens, hex, name) => {
    if (name) return Object.hasOwn(kEntities, name) ? kEntities[name] : whole;
    const code = tens ? Number(tens) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
  });
}
const restoreTabs = (text) => text.replaceAll(kTab, "\t");

function formula(text, isBlock) {
  const out = make(isBlock ? "div" : "span", { className: isBlock ? "formula block" : "formula" });
  try {
    if (text.length > kLongestFormula) throw new Error("too long");
    katex.render(text, out, { displayMode: isBlock, output: "mathml", throwOnError: true, strict: "ignore", trust: false, maxExpand: 200, maxSize: 20 });
  } catch {
    out.replaceChildren(make("code", {}, text));  // an unknown or unfinished formula is shown as it is written
  }
  return out;
}

// The text with a syntax's colours. highlight.js returns a string of spans and text, which is taken apart here.
function paint(into, text, language) {
  if (!language || !hljs.getLanguage(language) || text.length > kLongestPainted) return void into.append(text);
  let box = into;
  for (const [piece, name] of hljs.highlight(language, text, true).value.matchAll(/<span class="([^"]*)">|<\/span>|[^<]+/g)) {
    if (name !== undefined) {
      const span = make("span", { className: name });
      box.append(span);
      box = span;
    } else if (piece === "</span>") {
      box = box === into ? into : box.parentNode;
    } else {
      box.append(decode(piece));
    }
  }
}
function codeBlock(text, language) {
  const name = (language || "").trim().split(/\s/)[0].toLowerCase(), code = make("code");
  paint(code, text, name);
  return make("figure", { className: "code" },
    make("figcaption", {}, make("span", {}, name), make("button", { type: "button", className: "plain copycode" }, say("copy"))),
    make("pre", { tabIndex: 0 }, code));
}

function addInline(tokens, into) {
  const open = [];
  for (const one of tokens) {
    const box = open.length ? open.at(-1).element : into;
    if (one.type === "text" || one.type === "escape") {
      if (one.tokens) addInline(one.tokens, box);
      else box.append(decode(one.text));
    } else if (one.type === "strong" || one.type === "em" || one.type === "del") {
      const element = make(one.type);
      addInline(one.tokens, element);
      box.append(element);
    } else if (one.type === "codespan") {
      box.append(make("code", {}, restoreTabs(decode(one.text))));
    } else if (one.type === "br") {
      box.append(make("br"));
    } else if (one.type === "math") {
      box.append(formula(one.text, false));
    } else if (one.type === "link" || one.type === "image") {
      // Images of other hosts are never loaded: a link names them. Only these schemes become links.
      const href = decode(one.href).trim(), isSafe = /^(https?:\/\/|mailto:)/i.test(href);
      const element = isSafe ? make("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }) : make("span");
      if (one.type === "image") element.append(decode(one.text) || say("image"));
      else addInline(one.tokens, element);
      if (!isSafe) element.append(` (${href.slice(0, 200)})`);
      box.append(element);
    } else {
      // Of HTML only elements without attributes that change the look of a text; all other is shown as it is written.
      const tag = /^<(\/?)(br|sub|sup|kbd|u|b|i|s|mark)\s*\/?>$/i.exec(one.raw), name = tag && tag[2].toLowerCase();
      if (name === "br") box.append(make("br"));
      else if (tag && !tag[1]) {
        const element = make(name);
        box.append(element);
        open.push({ name, element });
      } else if (tag && open.length && open.at(-1).name === name) open.pop();
      else box.append(one.raw);
    }
  }
}

function tableOf(one) {
  const row = (cells, tag) => make("tr", {}, ...cells.map((cell, i) => {
    const out = make(tag, { className: one.align[i] ? "to-" + one.align[i] : "" });
    addInline(cell.tokens, out);
    return out;
  }));
  return make("div", { className: "scroll", tabIndex: 0 }, make("table", { className: "shown" }, make("thead", {}, row(one.header, "th")),
    make("tbody", {}, ...one.rows.map((cells) => row(cells, "td")))));
}
function blocks(tokens) {
  return tokens.map(block).filter((one) => one);
}
function block(one) {
  if (one.type === "code") return codeBlock(restoreTabs(one.text), one.lang);
  if (one.type === "mathblock") return formula(one.text, true);
  if (one.type === "table") return tableOf(one);
  if (one.type === "hr") return make("hr");
  if (one.type === "blockquote") return make("blockquote", {}, ...blocks(one.tokens));
  if (one.type === "html") return make("p", { className: "asis" }, one.raw.trimEnd());
  if (one.type === "list") {
    return make(one.ordered ? "ol" : "ul", one.ordered && one.start !== 1 ? { start: Number(one.start) } : {}, ...one.items.map((item) => {
      const out = make("li", {}, item.task ? make("input", { type: "checkbox", disabled: true, checked: Boolean(item.checked), ariaLabel: item.checked ? "✓" : "–" }) : null);
      // The first line of an item has no paragraph around it where the list is tight.
      for (const part of item.tokens) {
        if (part.type === "text" && part.tokens) addInline(part.tokens, out);
        else out.append(...blocks([part]));
      }
      return out;
    }));
  }
  if (one.type === "heading" || one.type === "paragraph" || one.type === "text") {
    const out = make(one.type === "heading" ? "h" + Math.min(6, one.depth + 2) : "p");
    addInline(one.tokens || [{ type: "text", text: one.text }], out);
    return out;
  }
  return null;  // space, and definitions of links
}

// As marked would change the text itself, so that lengths of tokens are lengths of it. Tabs that indent code are kept.
function normalized(text) {
  let fence = "";
  return text.replace(/\r\n?/g, "\n").split("\n").map((line) => {
    const found = /^\s*(`{3,}|~{3,})/.exec(line), inside = fence;
    if (found && !fence) fence = found[1];
    else if (found && found[1][0] === fence[0] && found[1].length >= fence.length && line.trim() === found[1]) fence = "";
    return line.includes("\t") ? line.replace(/^[ \t]+/, (blank) => blank.replaceAll("\t", inside ? kTab : "    ")) : line;
  }).join("\n");
}

// Whether marked reads the text in little time. It needs the square of the number of open emphases in a block, and more for
// markers nested in one line; such text is no prose, and would hold the page for minutes.
const kMostNested = 60, kMostEmphases = 1000;
const kNested = new RegExp(`^(?:[ \\t]*(?:>|[-*+]|\\d{1,9}[.)])){${kMostNested}}`);
function isTame(text) {
  let emphases = 0, isFenced = false;
  for (const line of text.split("\n")) {
    if (/^\s*(```|~~~)/.test(line)) isFenced = !isFenced;
    if (isFenced) continue;
    if (!line.trim()) emphases = 0;
    if (kNested.test(line)) return false;
    emphases += (line.match(/\*+(?=\S)|(?<!\w)_+(?=\S)/g) || []).length;
    if (emphases > kMostEmphases) return false;
  }
  return true;
}

// Shows a text that grows at its end. Blocks before the last one cannot change any more and stay in the page; only the last is
// made again, so a step costs as much as its block, not as the whole answer.
class MarkdownView {
  constructor(box) {
    this.box = box;
    this.clear();
  }
  clear() {
    this.text = "";
    this.length = 0;   // of the characters whose blocks are final
    this.final = [];   // their tokens
    this.last = [];    // the elements of the rest
    this.box.replaceChildren();
  }
  update(given, hasEnded) {
    const text = normalized(given);
    if (!text.startsWith(this.text.slice(0, this.length))) this.clear();
    if (text === this.text && !hasEnded) return;
    try {
      if (!isTame(text)) throw new Error("slow");
      this.advance(text, hasEnded);
    } catch {
      this.clear();
      this.box.append(make("p", { className: "asis" }, given));
    }
  }
  advance(text, hasEnded) {
    this.text = text;
    if (hasEnded && this.final.length) {
      // A later line can change an earlier block in rare cases (definitions of links, underlined headings).
      const whole = marked.lexer(text);
      const isSame = Object.keys(whole.links).length === 0 && this.final.every((one, i) => whole[i] && one.type === whole[i].type && one.raw === whole[i].raw);
      if (!isSame) this.clear(), this.text = text;
    }
    const rest = text.slice(this.length), tokens = marked.lexer(rest);
    let end = tokens.length - 1;
    while (end > 0 && tokens[end].type === "space") end--;
    if (tokens.map((one) => one.raw).join("") !== rest) end = 0;  // lengths cannot be relied on: nothing is final
    for (const one of this.last) one.remove();
    for (const one of tokens.slice(0, Math.max(0, end))) {
      this.final.push(one);
      this.length += one.raw.length;
      const element = block(one);
      if (element) this.box.append(element);
    }
    this.last = blocks(tokens.slice(Math.max(0, end)));
    this.box.append(...this.last);
  }
}
