// The chat in the middle of the page: the elements of messages, kept by message so that a change touches only its own.
const elements = new Map();  // by id of a message: {root, body, view, thoughts, ..}
let shown = new Conversation();
let follows = true, lastTop = 0;  // whether the page scrolls along with an answer
const streams = new Map();        // by id of an answer that is being written: {conversation, node, control}

function actionButton(name, word, action, ...more) {
  return make("button", { type: "button", className: "plain", "data-action": name, onclick: action }, say(word), ...more);
}
// A button that asks once more before it acts.
function sureButton(word, action) {
  const out = make("button", { type: "button", className: "plain", "data-action": "remove" }, say(word));
  out.addEventListener("click", () => {
    if (out.dataset.sure) return void action();
    out.dataset.sure = "1";
    out.textContent = say("sure");
  });
  out.addEventListener("blur", () => {
    delete out.dataset.sure;
    out.textContent = say(word);
  });
  return out;
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages over plain HTTP from another machine have no clipboard interface.
    const area = make("textarea", { value: text, className: "away" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = say("copied");
  setTimeout(() => { button.textContent = say("copy"); }, 1500);
}

function speedText(stats) {
  const parts = [];
  if (stats.rate) parts.push(say("rate", stats.rate.toFixed(1)));
  if (stats.tokens) parts.push((stats.exact ? "" : "≈ ") + say("tokens", stats.tokens));
  if (stats.first !== undefined) parts.push(`${say("first")} ${stats.first.toFixed(2)} s`);
  return parts.join(" · ");
}

function addTokens(box, list) {
  for (const one of list) {
    const chance = Math.exp(one.logprob);
    const token = make("button", { type: "button", className: "token sure" + (chance > 0.7 ? 3 : chance > 0.2 ? 2 : 1), ariaLabel: `${one.token} ${(100 * chance).toFixed(1)} %` }, one.token);
    token.odds = one;
    box.append(token);
  }
}
// Shows the alternatives that the model considered for a token, next to it.
function showOdds(token) {
  const one = token.odds, card = at("card");
  const rows = [[one.token, one.logprob, true], ...(one.top_logprobs || []).filter((t) => t.token !== one.token).map((t) => [t.token, t.logprob, false])];
  rows.sort((a, b) => b[1] - a[1]);
  at("token").replaceChildren(...rows.map(([text, chance, isDrawn]) => make("tr", { className: isDrawn ? "drawn" : "" },
    make("td", {}, (isDrawn ? "▸ " : "") + JSON.stringify(text).slice(1, -1)), make("td", {}, (100 * Math.exp(chance)).toFixed(2) + " %"))));
  card.hidden = false;
  const place = token.getBoundingClientRect(), size = card.getBoundingClientRect();
  const below = place.bottom + 6 + size.height < innerHeight;
  card.style.left = Math.max(8, Math.min(place.left, innerWidth - size.width - 8)) + "px";
  card.style.top = Math.max(8, below ? place.bottom + 6 : place.top - size.height - 6) + "px";
}
function hideOdds() { at("card").hidden = true; }

function elementOf(node) {
  if (!elements.has(node.id)) {
    const isAnswer = node.role === "assistant";
    const parts = { name: make("span", { className: "who" }), body: make("div", { className: "body" }), foot: make("div", { className: "foot" }) };
    parts.root = make("article", { className: "said " + node.role }, parts.name, parts.body, parts.foot);
    parts.root.dataset.id = node.id;
    if (isAnswer) {
      parts.thoughtBody = make("div", { className: "markdown" });
      parts.thoughtHead = make("summary");
      parts.thoughts = make("details", { className: "thoughts", hidden: true }, parts.thoughtHead, parts.thoughtBody);
      parts.text = make("div", { className: "markdown" });
      parts.tokens = make("div", { className: "tokens", hidden: true });
      parts.calls = make("div", { className: "calls" });
      parts.note = make("p", { className: "note", hidden: true });
      parts.view = new MarkdownView(parts.text);
      parts.thoughtView = new MarkdownView(parts.thoughtBody);
      parts.body.append(parts.thoughts, parts.text, parts.tokens, parts.calls, parts.note);
      parts.asTokens = Boolean(node.odds);
      parts.thoughts.addEventListener("toggle", () => updateAnswer(node));
    }
    elements.set(node.id, parts);
    if (isAnswer) updateAnswer(node);
    else fillMessage(node, parts);
  }
  return elements.get(node.id);
}
function fillMessage(node, parts) {
  parts.body.replaceChildren(...(node.files || []).map((file) => file.picture ? thumbnail(file) : make("details", { className: "file" },
    make("summary", {}, `${file.name} · ${sizeText(file.text)}`), make("pre", { tabIndex: 0 }, file.text))),
  make("div", { className: "plaintext" }, node.content));
}

function fillCalls(node, parts) {
  const isOpen = !streams.has(node.id);
  parts.calls.replaceChildren(...(node.calls || []).map((call) => {
    let text = call.text;
    try { text = JSON.stringify(JSON.parse(call.text), null, 2); } catch { /* not yet whole, or not JSON: as it is */ }
    const code = make("code");
    paint(code, text, "json");
    return make("details", { className: "call", open: true }, make("summary", {}, `${say("call")}: ${call.name}`), make("pre", { tabIndex: 0 }, code));
  }));
  const isAnswered = shown.children.has(node.id) && shown.children.get(node.id).length > 0;
  if (!isOpen || !(node.calls || []).length || isAnswered || !shown.nodes.has(node.id)) return;
  const areas = node.calls.map((call) => make("textarea", { rows: 2, ariaLabel: `${say("result")}: ${call.name}`, placeholder: `${say("result")}: ${call.name}` }));
  const form = make("form", { className: "results" }, ...areas, make("button", { type: "submit" }, say("sendresult")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sendResults(node, areas.map((area) => area.value));
  });
  parts.calls.append(form);
}

// Brings the element of an answer up to its content, as far as it is shown.
function updateAnswer(node) {
  const parts = elements.get(node.id);
  if (!parts) return;
  const isWriting = streams.has(node.id), { reasoning, content, isThinking } = splitThinking(node);
  parts.root.classList.toggle("writing", isWriting);
  parts.root.setAttribute("aria-busy", String(isWriting));
  parts.thoughts.hidden = !reasoning;
  if (reasoning) {
    parts.thoughtHead.textContent = isWriting && isThinking ? say("thinking") : node.seconds !== undefined ? say("thoughtfor", node.seconds.toFixed(1)) : say("thought");
    if (parts.thoughts.open) parts.thoughtView.update(reasoning, !isWriting);  // closed: nothing to draw
  }
  if (node.odds && isWriting) parts.asTokens = true;
  const asTokens = Boolean(parts.asTokens && node.odds);
  parts.tokens.hidden = !asTokens;
  parts.text.hidden = asTokens;
  if (asTokens) addTokens(parts.tokens, node.odds.slice(parts.tokens.childElementCount));
  else parts.view.update(content, !isWriting);
  const calls = JSON.stringify([node.calls, isWriting, say("result"), shown.children.get(node.id)]);
  if (parts.callsShown !== calls) fillCalls(node, parts), parts.callsShown = calls;
  const note = node.error || (node.finish === "length" ? say("cut") : node.finish === "stopped" ? say("stopped") : "");
  parts.note.hidden = !note || isWriting;
  parts.note.className = node.error ? "note wrong" : "note";
  parts.note.textContent = note + (gotNothing(node) ? " " + say("notsent") : "");
  if (isWriting && !content && !reasoning && !node.odds) parts.name.dataset.waits = "1";
  else delete parts.name.dataset.waits;
}

function updateFoot(node) {
  const parts = elementOf(node), ids = shown.siblings(node), place = ids.indexOf(node.id), isWriting = streams.has(node.id);
  parts.name.textContent = node.role === "user" ? say("you") : node.role === "tool" ? say("result") : node.model || "";
  const row = [];
  if (ids.length > 1) {
    const step = (by, label, sign) => make("button", { type: "button", className: "plain", ariaLabel: say(label), title: say(label), "data-action": label, disabled: place + by < 0 || place + by >= ids.length,
      onclick: () => switchTo(node, ids[place + by]) }, sign);
    row.push(make("span", { className: "branch" }, step(-1, "previous", "‹"), make("span", {}, `${place + 1}/${ids.length}`), step(1, "next", "›")));
  }
  if (!isWriting) {
    const copy = make("button", { type: "button", className: "plain", "data-action": "copy" }, say("copy"));
    copy.addEventListener("click", () => copyText(node.role === "assistant" ? splitThinking(node).content : node.content, copy));
    row.push(copy);
    if (node.role === "assistant") {
      const isLast = !shown.children.get(node.id).length;
      row.push(actionButton("again", gotNothing(node) ? "retry" : "again", () => regenerate(node)));
      if (isLast && node.content && !(node.calls || []).length) row.push(actionButton("onward", "onward", () => continueAnswer(node)));
      if (node.odds) row.push(actionButton("odds", parts.asTokens ? "formatted" : "pertoken", () => {
        parts.asTokens = !parts.asTokens;
        updateAnswer(node);
        updateFoot(node);
      }));
    }
    row.push(actionButton("edit", "edit", () => editMessage(node)), sureButton("remove", () => removeMessage(node)));
    if (node.stats) row.push(make("span", { className: "speed" }, speedText(node.stats)));
  }
  parts.foot.replaceChildren(...row);
}

// Draws the conversation that is shown: the elements of its path, made only where they do not exist yet.
function draw() {
  const path = shown.path(), talk = at("messages");
  hideOdds();
  talk.replaceChildren(...path.map((node) => elementOf(node).root));
  for (const node of path) {
    if (node.role === "assistant") updateAnswer(node);
    updateFoot(node);
  }
  at("hello").hidden = path.length > 0;
  showState();
  follow();
}
function forget(ids) {
  for (const id of ids) elements.delete(id);
}

// Scrolls along unless the reader has scrolled up, which the place shows before the browser reports it by an event.
function readScroll() {
  const talk = at("talk"), isAtEnd = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 8;
  if (isAtEnd) follows = true;
  else if (talk.scrollTop < lastTop - 1) follows = false;
  lastTop = talk.scrollTop;
  return isAtEnd;
}
function follow() {
  readScroll();
  if (follows) at("talk").scrollTop = at("talk").scrollHeight;
  lastTop = at("talk").scrollTop;
  at("latest").hidden = follows;
}
function followAgain() {
  follows = true;
  lastTop = 0;
}
function onScroll() {
  const isAtEnd = readScroll();
  at("latest").hidden = isAtEnd || follows;
  hideOdds();
}

function editMessage(node) {
  const parts = elementOf(node), isAnswer = node.role === "assistant";
  const area = make("textarea", { value: node.content, ariaLabel: say("edit"), rows: Math.min(14, 2 + node.content.split("\n").length) });
  const close = () => {
    form.replaceWith(parts.body);
    updateFoot(node);
  };
  const apply = () => {
    close();
    if (area.value === node.content && isAnswer) return;
    if (isAnswer) {
      node.content = area.value;
      node.odds = undefined;
      node.error = undefined;
      forget([node.id]);
      draw();
      keep(shown);
    } else if (area.value.trim() || (node.files || []).length) {
      sendAfter(node.parent, { role: node.role, content: area.value, files: node.files, callId: node.callId });
    }
  };
  const form = make("form", { className: "edits" }, area,
    make("div", { className: "row" }, make("button", { type: "submit", className: "strong" }, say(isAnswer ? "save" : "send")), make("button", { type: "button", onclick: close }, say("cancel"))));
  form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.stopPropagation(), close();
    if (!isAnswer && isSendKey(event)) event.preventDefault(), apply();
  });
  parts.body.replaceWith(form);
  parts.foot.replaceChildren();
  area.focus();
}
