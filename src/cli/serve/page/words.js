// Every word of the page, in English and Korean. Elements of page.html name theirs by data-say (their text) and data-label
// (their accessible name and tooltip).
const words = {
  en: {
    skip: "To the message", fresh: "New chat", send: "Send", stop: "Stop", model: "Model", system: "System message", key: "Key (Authorization)",
    sampling: "Sampling", temperature: "Temperature", most: "Most tokens (empty: as many as fit)", seed: "Seed", odds: "Probabilities of tokens",
    first: "first token", server: "Server", all: "All sequences", running: "Running", waiting: "Waiting", cache: "Cache used", memory: "Memory",
    keys: "Keys", line: "new line", look: "light or dark", tongue: "language", ask: "Message", talk: "Chat", you: "You", dark: "Dark", light: "Light",
    writing: "writing…", stopped: "Stopped.", cut: "Cut: the limit of tokens is reached.", gone: "The server does not answer.", settings: "Settings",
    chats: "Chats", find: "Search chats", nochats: "No chats yet.", nofound: "No chat contains this.", rename: "Rename", remove: "Delete",
    sure: "Delete?", title: "Title", exportall: "Export all", importing: "Import", asjson: "Export as JSON", asmarkdown: "Export as Markdown",
    menu: "Show or hide chats", close: "Close", attach: "Attach text files", more: "Chat menu", edit: "Edit", copy: "Copy", copied: "Copied",
    again: "Regenerate", retry: "Try again", onward: "Continue", cancel: "Cancel", save: "Save", previous: "Previous alternative",
    next: "Next alternative", thinking: "Thinking…", thought: "Thought", thoughtfor: "Thought for {0} s", call: "Tool call", result: "Result",
    sendresult: "Send result", tools: "Tools (JSON of the API's \"tools\")", thinkmode: "Thinking", usual: "default", on: "on", off: "off",
    other: "Page", history: "History, most MiB", reset: "Reset settings", about: "About", formatted: "Formatted", pertoken: "Probabilities",
    rate: "{0} tokens/s", tokens: "{0} tokens", notsent: "This message got no answer and is not sent again.", latest: "Latest",
    full: "The history is full ({0} MiB). New messages are not kept until you delete chats or raise the limit in the settings.",
    nostore: "This browser keeps no history here. Export chats that you need.", binary: "{0} is not a text file.",
    large: "{0} is larger than {1} KiB.", many: "No more than {0} files, {1} KiB together.", unreadable: "{0} is not a file of exported chats.",
    imported: "Chats imported: {0}", badtools: "The tools in the settings are not a JSON list.", pasted: "pasted.txt", drop: "Drop text files here",
    hello: "How can I help?", hint: "Chats stay in this browser. Text files can be dropped or pasted into the message.",
    attachboth: "Attach pictures and text files", dropboth: "Drop pictures and text files here", picture: "pasted picture",
    blind: "{0}: this model reads no pictures.", nopicture: "{0} is no picture that this browser can read.",
    adapters: "Models and adapters", image: "image", unsaved: "not kept", broken: "The connection ended before the answer did.",
    aboutpage: "The page of lumen serve. It contacts only this server. It contains these libraries:",
  },
  ko: {
    skip: "메시지로 이동", fresh: "새 대화", send: "보내기", stop: "멈추기", model: "모델", system: "시스템 메시지", key: "키 (Authorization)",
    sampling: "샘플링", temperature: "온도", most: "최대 토큰 수 (비우면 가능한 만큼)", seed: "시드", odds: "토큰별 확률",
    first: "첫 토큰", server: "서버", all: "전체 속도", running: "작성 중", waiting: "대기 중", cache: "캐시 사용", memory: "메모리",
    keys: "단축키", line: "줄 바꿈", look: "밝게/어둡게", tongue: "언어", ask: "메시지", talk: "대화", you: "나", dark: "어둡게", light: "밝게",
    writing: "작성 중…", stopped: "멈췄습니다.", cut: "토큰 한도에서 잘렸습니다.", gone: "서버가 응답하지 않습니다.", settings: "설정",
    chats: "대화 목록", find: "대화 검색", nochats: "아직 대화가 없습니다.", nofound: "찾는 대화가 없습니다.", rename: "이름 바꾸기", remove: "삭제",
    sure: "삭제할까요?", title: "제목", exportall: "모두 내보내기", importing: "가져오기", asjson: "JSON으로 내보내기", asmarkdown: "Markdown으로 내보내기",
    menu: "대화 목록 열기/닫기", close: "닫기", attach: "텍스트 파일 첨부", more: "대화 메뉴", edit: "편집", copy: "복사", copied: "복사됨",
    again: "다시 생성", retry: "다시 시도", onward: "이어서 쓰기", cancel: "취소", save: "저장", previous: "이전 답변",
    next: "다음 답변", thinking: "생각하는 중…", thought: "생각", thoughtfor: "{0}초 동안 생각함", call: "도구 호출", result: "결과",
    sendresult: "결과 보내기", tools: "도구 (API \"tools\"의 JSON)", thinkmode: "생각하기", usual: "기본값", on: "켬", off: "끔",
    other: "페이지", history: "기록 최대 MiB", reset: "설정 초기화", about: "정보", formatted: "서식", pertoken: "확률",
    rate: "{0} 토큰/초", tokens: "{0} 토큰", notsent: "이 메시지는 답을 받지 못해 다시 보내지 않습니다.", latest: "맨 아래로",
    full: "기록이 가득 찼습니다({0} MiB). 대화를 삭제하거나 설정에서 한도를 늘릴 때까지 새 메시지는 저장되지 않습니다.",
    nostore: "이 브라우저에는 기록이 저장되지 않습니다. 필요한 대화는 내보내세요.", binary: "{0}: 텍스트 파일이 아닙니다.",
    large: "{0}: {1} KiB보다 큽니다.", many: "파일은 {0}개, 모두 합해 {1} KiB까지입니다.", unreadable: "{0}: 내보낸 대화 파일이 아닙니다.",
    imported: "가져온 대화: {0}", badtools: "설정의 도구가 JSON 목록이 아닙니다.", pasted: "붙여넣기.txt", drop: "텍스트 파일을 여기에 놓으세요",
    hello: "무엇을 도와드릴까요?", hint: "대화는 이 브라우저에만 저장됩니다. 텍스트 파일은 메시지에 끌어다 놓거나 붙여넣을 수 있습니다.",
    attachboth: "그림과 텍스트 파일 첨부", dropboth: "그림과 텍스트 파일을 여기에 놓으세요", picture: "붙여넣은 그림",
    blind: "{0}: 이 모델은 그림을 읽지 못합니다.", nopicture: "{0}: 이 브라우저에서 읽을 수 없는 그림입니다.",
    adapters: "모델과 어댑터", image: "그림", unsaved: "저장되지 않음", broken: "답변이 끝나기 전에 연결이 끊어졌습니다.",
    aboutpage: "lumen serve의 페이지입니다. 이 서버에만 연결하며, 다음 라이브러리를 포함합니다:",
  },
};
let tongue = "en";
const say = (name, ...values) => words[tongue][name].replace(/\{(\d)\}/g, (_, i) => values[i]);

const at = (id) => document.getElementById(id);

// An element with properties, and children that are nodes or plain text.
function make(tag, properties, ...children) {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null) continue;
    if (name === "ariaLabel") out.setAttribute("aria-label", value);  // not a property in every browser
    else if (name in out && name !== "role") out[name] = value;
    else out.setAttribute(name, value);
  }
  out.append(...children.filter((one) => one !== null && one !== undefined));
  return out;
}
