// Sending: new messages, alternatives, continued answers and results of tools. An answer belongs to its conversation, whichever
// is shown meanwhile, so several may be written at once.
function streamOfShown() {
  for (const stream of streams.values()) if (stream.conversation === shown) return stream;
  return null;
}

// Keeps a conversation; the notice appears where that fails, and goes where it works again.
async function keep(conversation) {
  if (!conversation.nodes.size || conversation.isDeleted) return;
  try {
    await store.put(conversation);
    notice("store", store.database ? "" : say("nostore"));
  } catch (error) {
    notice("store", error instanceof HistoryFull ? say("full", settings.history) : say("nostore"));
  }
  drawChats();
}

// Drawing takes at most a fifth of the time: after a slow step the next one waits longer.
function schedule(stream) {
  if (stream.timer) return;
  stream.timer = setTimeout(() => {
    stream.timer = 0;
    if (stream.conversation !== shown || !streams.has(stream.node.id)) return;
    const begin = performance.now();
    updateAnswer(stream.node);
    follow();
    stream.cost = performance.now() - begin;
  }, Math.max(25, 4 * stream.cost));
}

async function write(conversation, node, isContinued) {
  const stream = { conversation, node, control: new AbortController(), timer: 0, cost: 0 };
  streams.set(node.id, stream);
  node.error = undefined;
  node.finish = undefined;
  if (conversation === shown) {
    followAgain();
    draw();
  }
  keep(conversation);
  let kept = performance.now();
  try {
    const path = conversation.pathTo(node);
    const body = requestBody(messagesOf(isContinued ? path : path.slice(0, -1)), isContinued);
    await streamInto(node, body, stream.control.signal, () => {
      schedule(stream);
      if (performance.now() - kept < 5000) return;
      kept = performance.now();
      keep(conversation);
    });
  } catch (error) {
    if (stream.control.signal.aborted) node.finish = "stopped";
    else node.error = error.message;
  }
  clearTimeout(stream.timer);
  streams.delete(node.id);
  conversation.changed = Date.now();
  if (conversation === shown) {
    updateAnswer(node);
    for (const one of shown.path()) updateFoot(one);
    follow();
  } else {
    forget([node.id]);  // drawn anew when it is shown
  }
  showState();
  await keep(conversation);
  document.body.dataset.answers = String(Number(document.body.dataset.answers || 0) + 1);
}

function answerTo(parent) {
  const conversation = shown, node = conversation.add(parent.id, { role: "assistant", model: at("model").value });
  return write(conversation, node, false);
}
function sendAfter(parentId, fields) {
  if (streamOfShown()) return null;
  return answerTo(shown.add(parentId, fields));
}
function sendMessage() {
  const text = at("ask").value, files = takenFiles();
  if (streamOfShown() || (!text.trim() && !files.length)) return;
  at("ask").value = "";
  clearFiles();
  fitAsk();
  const last = shown.path().at(-1);
  sendAfter(last ? last.id : kRoot, { role: "user", content: text, files: files.length ? files : undefined });
  at("ask").focus();
}
function regenerate(node) {
  if (streamOfShown()) return;
  answerTo(shown.nodes.get(node.parent));
}
function continueAnswer(node) {
  if (streamOfShown()) return;
  node.odds = undefined;  // of the first part alone
  elementOf(node).tokens.replaceChildren();
  write(shown, node, true);
}
function sendResults(node, texts) {
  if (streamOfShown()) return;
  let parent = node;
  for (const [i, call] of node.calls.entries()) parent = shown.add(parent.id, { role: "tool", callId: call.id, content: texts[i] });
  answerTo(parent);
}
function switchTo(node, id) {
  shown.chosen.set(node.parent, id);
  draw();
  keep(shown);
}
function removeMessage(node) {
  for (const stream of streams.values()) if (stream.conversation === shown && shown.pathTo(stream.node).includes(node)) stream.control.abort();
  forget(shown.remove(node));
  draw();
  if (shown.nodes.size) keep(shown);
  else removeChat(shown.id);
}
function stopWriting() {
  const stream = streamOfShown();
  if (stream) stream.control.abort();
  return Boolean(stream);
}

// Files that go with the next message. The text of texts becomes part of the prompt; pictures go as they are, where the model
// reads pictures: larger ones are scaled down, as the model would do itself.
const kMostFiles = 10, kLargestFile = 256, kLargestFiles = 1024;  // the last two in KiB
const kLargestSide = 1536, kLargestPicture = 1024;                // pixels, and KiB of base64
let files = [];
const takenFiles = () => files.slice();
function sizeText(text) {
  const bytes = new Blob([text]).size;
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`;
}
function drawFiles() {
  at("files").replaceChildren(...files.map((file, i) => make("span", { className: "chip" }, file.picture ? thumbnail(file) : null, file.picture ? file.name : `${file.name} · ${sizeText(file.text)}`,
    make("button", { type: "button", className: "plain", ariaLabel: `${say("remove")}: ${file.name}`, onclick: () => { files.splice(i, 1); drawFiles(); } }, "×"))));
}
function clearFiles() {
  files = [];
  drawFiles();
  notice("file", "");
}
const thumbnail = (file) => make("img", { className: "thumbnail", src: file.picture, alt: file.name, decoding: "async" });
const isPicture = (file) => /^image\/(?!svg)/.test(file.type);
// The picture as a data: URL of a kind that the server reads.
async function readPicture(file) {
  const given = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
  const image = new Image();
  image.src = given;
  await image.decode();
  const scale = kLargestSide / Math.max(image.naturalWidth, image.naturalHeight);
  if (scale >= 1 && kPicture.test(given) && given.length <= kLargestPicture * 1024) return given;
  const canvas = make("canvas", { width: Math.max(1, Math.round(image.naturalWidth * Math.min(1, scale))), height: Math.max(1, Math.round(image.naturalHeight * Math.min(1, scale))) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const exact = canvas.toDataURL("image/png");
  return exact.length <= kLargestPicture * 1024 ? exact : canvas.toDataURL("image/jpeg", 0.9);
}
async function addFiles(list) {
  const refused = [];
  for (const file of list) {
    if (isPicture(file)) {
      if (!canSee()) { refused.push(say("blind", file.name)); continue; }
      if (files.length >= kMostFiles) { refused.push(say("many", kMostFiles, kLargestFiles)); break; }
      try {
        files.push({ name: file.name || say("picture"), text: "", picture: await readPicture(file) });
      } catch {
        refused.push(say("nopicture", file.name));
      }
      continue;
    }
    const sum = files.reduce((n, one) => n + new Blob([one.text]).size, 0);
    if (file.size > kLargestFile * 1024) { refused.push(say("large", file.name, kLargestFile)); continue; }
    if (files.length >= kMostFiles || sum + file.size > kLargestFiles * 1024) { refused.push(say("many", kMostFiles, kLargestFiles)); break; }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new Error("binary");
      files.push({ name: file.name || say("pasted"), text });
    } catch {
      refused.push(say("binary", file.name));
    }
  }
  notice("file", refused.join(" "));
  drawFiles();
  at("ask").focus();
}
