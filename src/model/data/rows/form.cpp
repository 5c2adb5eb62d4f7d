#include "model/data/rows/form.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::data {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kLongestLook = size_t{1} << 20;  // limit of a row that is parsed to check its form
constexpr std::array<char, 4> kSeparators = {',', ';', '\t', '|'};

bool is_object(std::string_view text) {
  if (text.size() > kLongestLook) return false;
  try {
    return parse_ordered_json(text, "", 64).is_object();
  } catch (const Error&) {
    return false;
  }
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, std::min(text.find('\n'), text.size()));
}

// JSON Lines, a list of objects (or objects that span several lines), or neither.
enum class Look { lines, list, neither };

Look look_at_json(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return Look::neither;
  text = text.substr(first, kLongestLook);
  const std::string_view line = first_line(text);
  const bool is_alone = text.find_first_not_of(kSpace, line.size()) == std::string_view::npos;
  const size_t end = end_of_json_value(text, 0);
  if (text[0] == '[') {
    const size_t element = text.find_first_not_of(kSpace, 1);
    if (element == std::string_view::npos || (text[element] != '{' && text[element] != ']')) return Look::neither;
    // A whole list on a line with other lines after it is a broken row among others.
    return end <= line.size() && !is_alone ? Look::neither : Look::list;
  }
  if (text[0] != '{' || end == std::string_view::npos) return Look::neither;
  if (end > line.size()) return is_object(text.substr(0, end)) ? Look::list : Look::neither;
  if (line.find_first_not_of(kSpace, end) != std::string_view::npos) return Look::neither;
  if (is_alone || !is_object(line)) return Look::neither;
  // The next object may span several lines.
  const std::string_view rest = text.substr(text.find_first_not_of(kSpace, line.size()));
  const size_t next = end_of_json_value(rest, 0);
  const bool is_longer = next != std::string_view::npos && next > first_line(rest).size();
  return is_longer && is_object(rest.substr(0, next)) ? Look::neither : Look::lines;
}

// The header's separator: the one that the name suggests if it occurs at all, else the most frequent.
char separator_of(std::string_view header, char promised) {
  std::array<size_t, kSeparators.size()> counts{};
  bool is_quoted = false;
  for (const char c : header) {
    if (c == '"') is_quoted = !is_quoted;
    if (is_quoted) continue;
    if (c == promised) return promised;
    for (size_t i = 0; i < kSeparators.size(); ++i) counts[i] += c == kSeparators[i];
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  return *most == 0 ? promised : kSeparators[most - counts.begin()];
}

const char* separator_name(char separator) {
  switch (separator) {
    case ';':
      return "semicolons";
    case '\t':
      return "tabs";
    case '|':
      return "bars";
    default:
      return "commas";
  }
}

FoundForm table(std::string_view text, char promised) {
  FoundForm out{.form = TextForm::table, .separator = promised};
  // As spreadsheets write it.
  const std::string_view line = first_line(text);
  if (line.starts_with("sep=") && (line.size() == 5 || (line.size() == 6 && line[5] == '\r'))) {
    out.separator = line[4];
    out.skipped = std::min(line.size() + 1, text.size());
  } else {
    out.separator = separator_of(line, promised);
  }
  if (out.separator != promised)
    out.difference = fmt::format("a table whose fields are parted by {}", separator_name(out.separator));
  return out;
}

}  // namespace

size_t end_of_json_value(std::string_view text, size_t at) {
  size_t depth = 0;
  bool is_quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (is_quoted) {
      if (c == '\\') ++at;
      is_quoted = c != '"';
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return depth == 0 && !is_quoted ? text.size() : std::string_view::npos;
}

FoundForm form_of_rows(std::string_view text, std::string_view ending) {
  if (text.starts_with("PAR1"))
    return {.form = TextForm::parquet, .difference = ending == ".parquet" ? "" : "a Parquet file"};
  if (ending == ".parquet") return {.form = TextForm::parquet};
  if (ending == ".txt") return {.form = TextForm::text};
  if (ending == ".md" || ending == ".markdown" || ending == ".dlm") return {.form = TextForm::document};
  const Look look = look_at_json(text);
  if (ending == ".jsonl" || ending == ".ndjson") {
    if (look == Look::list) return {.form = TextForm::list, .difference = "a list of rows, not one row a line"};
    return {.form = TextForm::lines};
  }
  if (ending == ".json") {
    if (look == Look::lines) return {.form = TextForm::lines, .difference = "one row a line, not a list of rows"};
    return {.form = TextForm::list};
  }
  if (look == Look::list) return {.form = TextForm::list, .difference = "a list of JSON objects"};
  if (look == Look::lines) return {.form = TextForm::lines, .difference = "a JSON object a line"};
  return table(text, ending == ".tsv" ? '\t' : ',');
}

}  // namespace lumen::model::data
