#include "cli/terminal/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/command.h"
#include "cli/terminal/history.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

constexpr const char *kPasteOn = "\x1b[?2004h", *kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

std::wstring wide(std::string_view text) {
  std::wstring out;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = model::text::utf8_char(text, at, &c);
    out += wchar_t(n == 0 ? U'\ufffd' : c);
    at += std::max<size_t>(1, n);
  }
  return out;
}

std::string narrow(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) model::text::utf8_append(out, char32_t(c));
  return out;
}

// libedit writes and measures characters by the locale of the thread, and a program starts in the locale C.
class Utf8Locale {
 public:
  explicit Utf8Locale(locale_t locale) : before_(uselocale(locale)) {}
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() { uselocale(before_); }

 private:
  locale_t before_;
};

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  FILE* out = nullptr;
  locale_t locale = nullptr;
  Complete complete;
  std::wstring prompt;
  winsize size{};
  bool interrupted = false;

  ~State() {
    {
      const Utf8Locale utf8(locale);
      if (editor) el_end(editor);
      if (history) history_wend(history);
    }
    if (out) std::fclose(out);
    if (locale) freelocale(locale);
  }

  static State& of(EditLine* editor) {
    void* state = nullptr;
    el_wget(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }

  std::wstring before_cursor() const {
    const LineInfoW* line = el_wline(editor);
    return {line->buffer, line->cursor};
  }

  void follow_size() {
    winsize now{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) != 0 || (now.ws_col == size.ws_col && now.ws_row == size.ws_row)) return;
    size = now;
    el_resize(editor);
  }

  static wchar_t* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }

  // One character of standard input. libedit's own reader would go on after a signal.
  static int next_character(EditLine* editor, wchar_t* out) {
    State& state = of(editor);
    std::string bytes;
    for (;;) {
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n == 0) return 0;
      if (n < 0) {
        if (errno == EINTR && !cli::interrupted().load()) continue;
        state.interrupted = errno == EINTR;
        return -1;
      }
      state.follow_size();
      bytes += byte;
      char32_t c = 0;
      if (model::text::utf8_char(bytes, 0, &c) != 0) {
        *out = wchar_t(c);
        return 1;
      }
      const auto first = static_cast<unsigned char>(bytes[0]);
      const size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
      if (bytes.size() >= wanted) {
        *out = L'\ufffd';
        return 1;
      }
    }
  }

  // Reads a pasted text up to its end and inserts it: its newlines do not end the line.
  static unsigned char paste(EditLine* editor, int) {
    std::wstring text;
    while (!std::wstring_view(text).ends_with(kPasteEnd)) {
      wchar_t c = 0;
      if (el_wgetc(editor, &c) != 1) return CC_ERROR;
      text += c;
    }
    text.resize(text.size() - kPasteEnd.size());
    std::wstring clean;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == L'\r') {
        clean += L'\n';
        if (i + 1 < text.size() && text[i + 1] == L'\n') ++i;
      } else if (text[i] == L'\n' || text[i] == L'\t' || (text[i] >= 0x20 && text[i] != 0x7f)) {
        clean += text[i];
      }
    }
    while (clean.ends_with(L'\n')) clean.pop_back();
    if (!clean.empty() && el_winsertstr(editor, clean.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  static unsigned char complete_word(EditLine* editor, int) {
    State& state = of(editor);
    const std::string before = narrow(state.before_cursor());
    const Completion found = state.complete ? state.complete(before) : Completion{};
    if (found.words.empty()) return CC_ERROR;
    std::string common = found.words.front();
    for (const std::string& word : found.words) {
      size_t same = 0;
      while (same < common.size() && same < word.size() && common[same] == word[same]) ++same;
      common.resize(same);
    }
    while (model::text::utf8_valid_run(common, 0) != common.size()) common.pop_back();
    const std::string typed = before.substr(std::min(found.from, before.size()));
    if (found.words.size() == 1 && !common.ends_with('/')) common += ' ';
    if (common.size() > typed.size() && common.starts_with(typed)) {
      if (el_winsertstr(editor, wide(common.substr(typed.size())).c_str()) != 0) return CC_ERROR;
      return CC_REFRESH;
    }
    std::string list = "\n";
    for (const std::string& word : found.words) list += word + "  ";
    std::fputs((list + "\n").c_str(), state.out);
    std::fflush(state.out);
    return CC_REDISPLAY;
  }
};

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineEditor::~LineEditor() = default;

std::unique_ptr<LineEditor> LineEditor::open(Complete complete, const std::vector<std::string>& history) {
  const char* kind = std::getenv("TERM");
  if (!kind || !*kind || std::strcmp(kind, "dumb") == 0) return nullptr;
  auto state = std::make_unique<State>();
  for (const char* name : {"C.UTF-8", "en_US.UTF-8", ""})
    if (!state->locale) state->locale = newlocale(LC_CTYPE_MASK, name, nullptr);
  if (!state->locale) return nullptr;
  const Utf8Locale utf8(state->locale);
  // A stream of its own: libedit's prompts do not mix with the buffer of standard output.
  const int descriptor = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  state->out = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (!state->out) return nullptr;
  state->editor = el_init("lumen", stdin, state->out, state->out);
  state->history = history_winit();
  if (!state->editor || !state->history) return nullptr;
  EditLine* const editor = state->editor;
  state->complete = std::move(complete);
  el_wset(editor, EL_CLIENTDATA, static_cast<void*>(state.get()));
  el_wset(editor, EL_SIGNAL, 0);  // signals are the program's
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_PROMPT, &State::show_prompt);
  el_wset(editor, EL_GETCFN, &State::next_character);
  el_wset(editor, EL_ADDFN, L"lumen-paste", L"Insert a pasted text", &State::paste);
  el_wset(editor, EL_ADDFN, L"lumen-complete", L"Complete a word", &State::complete_word);
  constexpr const wchar_t* kKeys[][2] = {
      {L"\\e[200~", L"lumen-paste"},   {L"^I", L"lumen-complete"},          {L"^R", L"em-inc-search-prev"},
      {L"^W", L"ed-delete-prev-word"}, {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[H", L"ed-move-to-beg"},
      {L"\\e[F", L"ed-move-to-end"},   {L"\\e[1~", L"ed-move-to-beg"},      {L"\\e[4~", L"ed-move-to-end"},
      {L"\\e[1;5D", L"ed-prev-word"},  {L"\\e[1;5C", L"em-next-word"},
  };
  for (const auto& [key, command] : kKeys) el_wset(editor, EL_BIND, key, command, nullptr);
  HistEventW event{};
  history_w(state->history, &event, H_SETSIZE, int(InputHistory::kMost));
  history_w(state->history, &event, H_SETUNIQUE, 1);
  el_wset(editor, EL_HIST, history_w, state->history);
  auto out = std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
  for (const std::string& entry : history) out->remember(entry);
  return out;
}

LineEditor::Status LineEditor::read(const std::string& prompt, std::string* line) {
  State& state = *state_;
  const Utf8Locale utf8(state.locale);
  const auto say = [&](const char* text) {
    std::fputs(text, state.out);
    std::fflush(state.out);
  };
  state.prompt = wide(prompt);
  state.interrupted = false;
  state.follow_size();
  say(kPasteOn);
  int count = 0;
  const wchar_t* const text = el_wgets(state.editor, &count);
  say(kPasteOff);
  if (state.interrupted) return Status::interrupted;
  if (!text || count <= 0) return Status::end;
  *line = narrow({text, size_t(count)});
  if (line->ends_with('\n')) line->pop_back();
  return Status::line;
}

void LineEditor::remember(const std::string& text) {
  const Utf8Locale utf8(state_->locale);
  HistEventW event{};
  history_w(state_->history, &event, H_ENTER, wide(text).c_str());
}

}  // namespace lumen::cli
