// A conversation is a tree of messages: editing or regenerating adds a sibling, and `chosen` holds which child of each message
// is shown. A node: {id, parent, role, content, reasoning, calls, callId, files, model, finish, error, stats, seconds}.
const kNodeFields = ["role", "content", "reasoning", "calls", "callId", "files", "model", "finish", "error", "stats", "seconds"];
const kRoot = "";
const kPicture = /^data:image\/(?:png|jpeg|webp|bmp);base64,[A-Za-z0-9+/]+=*$/;  // a file of a message may be one: {name, text, picture}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (one) => one.toString(16).padStart(2, "0")).join("");
}

class Conversation {
  constructor(id = newId()) {
    this.id = id;
    this.title = "";
    this.isNamed = false;  // by its user; otherwise the title is the first message's beginning
    this.changed = Date.now();
    this.nodes = new Map();
    this.children = new Map([[kRoot, []]]);
    this.chosen = new Map();
  }
  add(parent, fields) {
    const node = { id: newId(), parent, role: "user", content: "", ...fields };
    this.insert(node);
    this.chosen.set(parent, node.id);
    this.changed = Date.now();
    if (!this.isNamed && !this.title && node.role === "user") this.title = titleOf(node);
    return node;
  }
  insert(node) {
    this.nodes.set(node.id, node);
    this.children.set(node.id, []);
    this.children.get(node.parent).push(node.id);
  }
  siblings(node) { return this.children.get(node.parent); }
  // The messages shown, from the first.
  path() {
    const out = [];
    for (let parent = kRoot; this.children.get(parent).length;) {
      const ids = this.children.get(parent), chosen = this.chosen.get(parent), id = ids.includes(chosen) ? chosen : ids.at(-1);
      out.push(this.nodes.get(id));
      parent = id;
    }
    return out;
  }
  pathTo(node) {
    const out = [];
    for (let one = node; one; one = this.nodes.get(one.parent)) out.unshift(one);
    return out;
  }
  // Removes a message and all that follow it; a sibling is shown instead if there is one.
  remove(node) {
    const ids = this.siblings(node), place = ids.indexOf(node.id), gone = [node.id];
    for (let i = 0; i < gone.length; i++) gone.push(...this.children.get(gone[i]));
    for (const id of gone) this.nodes.delete(id), this.children.delete(id), this.chosen.delete(id);
    ids.splice(place, 1);
    this.chosen.set(node.parent, ids[Math.max(0, place - 1)]);
    this.changed = Date.now();
    return gone;
  }
  // As it is kept and exported.
  plain() {
    const nodes = [], todo = [...this.children.get(kRoot)];
    for (let i = 0; i < todo.length; i++) {
      const node = this.nodes.get(todo[i]), out = { id: node.id, parent: node.parent };
      for (const name of kNodeFields) if (node[name] !== undefined && node[name] !== null && node[name] !== "") out[name] = node[name];
      nodes.push(out);
      todo.push(...this.children.get(node.id));
    }
    return { id: this.id, title: this.title, named: this.isNamed, changed: this.changed, nodes, chosen: [...this.chosen].filter((pair) => pair[1]) };
  }
}

function titleOf(node) {
  const text = (node.content || (node.files || []).map((file) => file.name).join(", ")).trim().split("\n")[0];
  return text.length > 60 ? text.slice(0, 59) + "…" : text;
}

// Reads what `plain` wrote, or a list of messages in the API's form; a fault throws. Types are checked, since a file may hold
// anything.
function conversationOf(given, keepsId) {
  const isText = (value) => typeof value === "string", fault = () => { throw new Error("no conversation"); };
  if (!given || typeof given !== "object") fault();
  const out = new Conversation(keepsId && isText(given.id) ? given.id : undefined);
  let messages = given.nodes;
  if (!messages && Array.isArray(given.messages)) {
    messages = given.messages.filter((one) => one && one.role !== "system").map((one, i) => ({ id: "m" + i, parent: i ? "m" + (i - 1) : kRoot, role: one.role, content: one.content,
      reasoning: one.reasoning_content, callId: one.tool_call_id }));
  }
  if (!Array.isArray(messages) || !messages.length) fault();
  for (const one of messages) {
    if (!one || !isText(one.id) || one.id === kRoot || out.nodes.has(one.id) || !out.children.has(one.parent)) fault();
    if (!["user", "assistant", "tool"].includes(one.role)) fault();
    const node = { id: one.id, parent: one.parent, role: one.role, content: "" };
    for (const name of ["content", "reasoning", "callId", "model", "finish", "error"]) if (isText(one[name])) node[name] = one[name];
    if (Number.isFinite(one.seconds)) node.seconds = one.seconds;
    if (Array.isArray(one.files)) node.files = one.files.filter((file) => file && isText(file.name) && isText(file.text)).map((file) => (isText(file.picture) && kPicture.test(file.picture) ? { name: file.name, text: "", picture: file.picture } : { name: file.name, text: file.text }));
    if (Array.isArray(one.calls)) node.calls = one.calls.filter((call) => call && isText(call.name) && isText(call.text)).map((call) => ({ id: String(call.id), name: call.name, text: call.text }));
    if (one.stats && typeof one.stats === "object") node.stats = Object.fromEntries(Object.entries(one.stats).filter((pair) => Number.isFinite(pair[1])));
    out.insert(node);
  }
  for (const [parent, id] of Array.isArray(given.chosen) ? given.chosen.filter(Array.isArray) : []) if (out.children.has(parent) && out.nodes.has(id)) out.chosen.set(parent, id);
  out.title = isText(given.title) ? given.title.slice(0, 200) : titleOf(out.path()[0]);
  out.isNamed = Boolean(given.named);
  if (Number.isFinite(given.changed)) out.changed = given.changed;
  return out;
}

// A fence that the text does not contain.
function fenced(text, language) {
  const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (one) => one[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}
function promptOf(node) {
  const files = (node.files || []).filter((file) => !file.picture).map((file) => `File ${file.name}:\n${fenced(file.text, (/\.(\w{1,12})$/.exec(file.name) || [])[1] || "")}\n\n`);
  return files.join("") + node.content;
}
// The content of a user's message: text, or pictures before it.
function contentOf(node) {
  const pictures = (node.files || []).filter((file) => file.picture).map((file) => ({ type: "image_url", image_url: { url: file.picture } })), text = promptOf(node);
  return pictures.length ? [...pictures, ...(text ? [{ type: "text", text }] : [])] : text;
}
const gotNothing = (node) => Boolean(node.error) && !node.content && !node.reasoning && !(node.calls || []).length;

// The messages of a path as the API takes them. A message that the server refused is left out together with its refusal, so
// that it cannot make every later request fail as well.
function messagesOf(path) {
  const out = [];
  for (const [i, node] of path.entries()) {
    if (gotNothing(node) || (path[i + 1] && gotNothing(path[i + 1]))) continue;
    if (node.role === "user") out.push({ role: "user", content: contentOf(node) });
    else if (node.role === "tool") out.push({ role: "tool", tool_call_id: node.callId || "", content: node.content });
    else {
      const message = { role: "assistant", content: node.content };
      if ((node.calls || []).length) message.tool_calls = node.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.text } }));
      out.push(message);
    }
  }
  return out;
}

// Thinking that stands in the content: after <think>, or before a </think> whose beginning is part of the prompt.
function splitThinking(node) {
  let content = node.content, reasoning = node.reasoning || "", isThinking = Boolean(reasoning) && !content;
  const begin = /^\s*<think(?:ing)?>/.exec(content), end = /<\/think(?:ing)?>/.exec(content);
  if (end && (begin || !reasoning)) {
    reasoning += content.slice(begin ? begin[0].length : 0, end.index);
    content = content.slice(end.index + end[0].length);
  } else if (begin) {
    reasoning += content.slice(begin[0].length);
    content = "";
    isThinking = true;
  }
  return { reasoning: reasoning.trim(), content: content.replace(/^\s*\n/, ""), isThinking };
}

function markdownOf(conversation) {
  const parts = [`# ${conversation.title}`];
  for (const node of conversation.path()) {
    const { reasoning, content } = node.role === "assistant" ? splitThinking(node) : { reasoning: "", content: promptOf(node) };
    parts.push(`## ${node.role === "assistant" ? node.model || "assistant" : node.role}`);
    if (reasoning) parts.push(reasoning.split("\n").map((line) => "> " + line).join("\n"));
    for (const file of node.files || []) if (file.picture) parts.push(`*${file.name}*`);
    if (content) parts.push(content);
    for (const call of node.calls || []) parts.push(`${call.name}:\n\n${fenced(call.text, "json")}`);
    if (node.error) parts.push(`*${node.error}*`);
  }
  return parts.join("\n\n") + "\n";
}
