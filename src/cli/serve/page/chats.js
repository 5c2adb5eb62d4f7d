// The list of conversations: search, names, export and import.
let searched = "", found = null, renamed = null, searchTimer = 0;

function drawChats() {
  const heads = [...store.heads.values()];
  if (shown.nodes.size && !store.heads.has(shown.id)) heads.push({ id: shown.id, title: shown.title, changed: shown.changed, isUnkept: true });
  const list = heads.filter((head) => !found || found.has(head.id)).sort((a, b) => b.changed - a.changed);
  at("nochats").hidden = list.length > 0;
  at("nochats").textContent = say(searched ? "nofound" : "nochats");
  if (renamed && at("chats").contains(document.activeElement)) return;  // a title is being typed
  at("chats").replaceChildren(...list.map((head) => {
    const isShown = head.id === shown.id;
    const row = make("li", { className: isShown ? "chosen" : "" });
    if ([...streams.values()].some((stream) => stream.conversation.id === head.id)) row.classList.add("writing");
    const open = make("button", { type: "button", className: "plain open", onclick: () => openChat(head.id), title: head.title }, head.title || say("fresh"),
      head.isUnkept && store.database ? make("small", {}, ` (${say("unsaved")})`) : null);
    if (isShown) open.setAttribute("aria-current", "true");
    row.append(open);
    if (renamed === head.id) {
      const input = make("input", { value: head.title, ariaLabel: say("title"), maxLength: 200 });
      const end = (isKept) => {
        if (renamed !== head.id) return;
        renamed = null;
        if (isKept && input.value.trim()) renameChat(head.id, input.value.trim());
        else drawChats();
      };
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && !event.isComposing && event.keyCode !== 229) end(true);
        if (event.key === "Escape") event.stopPropagation(), end(false);
      });
      input.addEventListener("blur", () => end(true));
      open.replaceWith(input);
    } else if (isShown) {
      row.append(make("div", { className: "tasks" },
        make("button", { type: "button", className: "plain", "data-action": "rename", onclick: () => { renamed = head.id; drawChats(); at("chats").querySelector("input").select(); } }, say("rename")),
        make("button", { type: "button", className: "plain", "data-action": "markdown", title: say("asmarkdown"), ariaLabel: say("asmarkdown"), onclick: () => exportChat("md") }, "Markdown"),
        make("button", { type: "button", className: "plain", "data-action": "json", title: say("asjson"), ariaLabel: say("asjson"), onclick: () => exportChat("json") }, "JSON"),
        sureButton("remove", () => removeChat(head.id))));
    }
    return row;
  }));
}

async function chatOf(id) {
  if (id === shown.id) return shown;
  for (const stream of streams.values()) if (stream.conversation.id === id) return stream.conversation;
  return store.get(id);
}
async function openChat(id) {
  const chat = await chatOf(id);
  if (!chat) return;
  if (chat !== shown) show(chat);
  if (isNarrow()) openChats(false);
}
function show(chat) {
  if (!streamOfShown()) forget(shown.nodes.keys());
  shown = chat;
  followAgain();
  notice("import", "");
  draw();
  drawChats();
}
// A new conversation. An answer that is being written goes on in its own, and is listed there.
function freshChat() {
  show(new Conversation());
  if (isNarrow()) openChats(false);
  at("ask").focus();
}
async function renameChat(id, title) {
  const chat = await chatOf(id);
  chat.title = title;
  chat.isNamed = true;
  await keep(chat);
}
async function removeChat(id) {
  const chat = await chatOf(id);
  if (chat) chat.isDeleted = true;
  for (const stream of streams.values()) if (stream.conversation.id === id) stream.control.abort();
  await store.remove(id);
  notice("store", "");
  if (id === shown.id) show(new Conversation());
  else drawChats();
}

function download(name, type, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
const fileName = (title) => (title.replace(/[^\p{L}\p{N} _-]/gu, "").trim().slice(0, 60) || "chat");
const exported = (chats) => JSON.stringify({ format: "lumen-chats", version: 1, chats: chats.map((one) => one.plain()) }, null, 1);
function exportChat(kind) {
  if (kind === "md") download(fileName(shown.title) + ".md", "text/markdown", markdownOf(shown));
  else download(fileName(shown.title) + ".json", "application/json", exported([shown]));
}
async function exportAll() {
  const chats = [];
  for (const id of store.heads.keys()) chats.push(await chatOf(id));
  if (shown.nodes.size && !store.heads.has(shown.id)) chats.push(shown);
  download("lumen-chats.json", "application/json", exported(chats.filter((one) => one)));
}
async function importChats(file) {
  let chats;
  try {
    const given = JSON.parse(await file.text());
    chats = (Array.isArray(given) ? given : given.chats || [given]).map((one) => conversationOf(one, false));
    if (!chats.length) throw new Error("empty");
  } catch {
    return void notice("import", say("unreadable", file.name));
  }
  let count = 0;
  for (const chat of chats) {
    await keep(chat);
    if (store.heads.has(chat.id)) count++;
  }
  if (chats.length === 1 || !store.database) show(chats[0]);
  notice("import", say("imported", count));
}

function search(text) {
  searched = text.trim();
  clearTimeout(searchTimer);
  searchTimer = setTimeout(async () => {
    const words = searched, ids = words ? await store.find(words) : null;
    if (words !== searched) return;
    found = ids;
    drawChats();
  }, 150);
}
