#include "model/eval/rows.h"

#include <zlib.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "model/file/json.h"
#include "model/text/unicode.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kLargest = uint64_t{1} << 30;

// The bytes of one or several gzip members.
std::string unpacked(const std::string& packed, const std::string& name) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw Error(Exit::hardware, "out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string out;
  std::string block(size_t{1} << 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  size_t left = packed.size();
  const auto give = [&] {
    const size_t some = std::min<size_t>(left, size_t{1} << 30);
    stream.avail_in = static_cast<uInt>(some);
    left -= some;
  };
  give();
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int code = inflate(&stream, Z_NO_FLUSH);
    out.append(block, 0, block.size() - stream.avail_out);
    if (out.size() > kLargest) throw user_error("{}: more than 1 GiB once unpacked", name);
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0 && left == 0) return out;
      if (stream.avail_in == 0) give();
      if (inflateReset(&stream) != Z_OK) throw user_error("{}: damaged gzip data", name);
    } else if (code == Z_OK || code == Z_BUF_ERROR) {
      if (stream.avail_in == 0) {
        if (left == 0) throw user_error("{}: the gzip data ends too early", name);
        give();
      }
    } else {
      throw user_error("{}: damaged gzip data: {}", name, stream.msg ? stream.msg : "unknown");
    }
  }
}

// Fields of the next record; several lines where a quoted field has them. Nothing at the end of the text.
std::optional<std::vector<std::string>> next_record(std::string_view text, size_t& at, size_t& line, char separator,
                                                    const std::string& name) {
  if (at >= text.size()) return std::nullopt;
  const bool quotes = separator == ',';
  std::vector<std::string> fields(1);
  for (const size_t first = ++line;;) {
    if (quotes && at < text.size() && text[at] == '"' && fields.back().empty()) {
      for (++at;; ++at) {
        if (at >= text.size()) throw user_error("{}:{}: a quoted field has no end", name, first);
        if (text[at] == '"') {
          if (at + 1 >= text.size() || text[at + 1] != '"') break;
          ++at;
        }
        line += text[at] == '\n';
        fields.back() += text[at];
      }
      ++at;
      if (at < text.size() && text[at] != separator && text[at] != '\n' && text[at] != '\r')
        throw user_error("{}:{}: text behind a quoted field", name, line);
    }
    if (at >= text.size()) return fields;
    const char c = text[at++];
    if (c == '\n') return fields;
    if (c == '\r' && (at >= text.size() || text[at] == '\n')) continue;
    if (c == separator)
      fields.emplace_back();
    else
      fields.back() += c;
  }
}

std::vector<ordered_json> separated(std::string_view text, char separator, const std::string& name) {
  size_t at = 0, line = 0;
  const auto header = next_record(text, at, line, separator, name);
  if (!header) throw user_error("{}: no header line", name);
  std::vector<ordered_json> rows;
  while (const auto fields = next_record(text, at, line, separator, name)) {
    if (fields->size() == 1 && fields->front().empty()) continue;
    if (fields->size() != header->size())
      throw user_error("{}:{}: {} fields, but the header names {}", name, line, fields->size(), header->size());
    ordered_json row = ordered_json::object();
    for (size_t i = 0; i < fields->size(); ++i) row[(*header)[i]] = (*fields)[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json parsed(std::string_view text, const std::string& where) {
  parse_json(text, where);  // its errors are the better ones, and it bounds depth
  return ordered_json::parse(text);
}

}  // namespace

std::vector<ordered_json> read_rows(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::string text = read_file(file, kLargest);
  std::filesystem::path kind = file;
  if (kind.extension() == ".gz") {
    text = unpacked(text, name);
    kind = kind.stem();
  }
  std::string_view view = text;
  if (view.starts_with("\xef\xbb\xbf")) view.remove_prefix(3);
  if (utf8_valid_run(view, 0) != view.size()) throw user_error("{}: no valid UTF-8", name);
  const std::string end = kind.extension().string();
  if (end == ".csv") return separated(view, ',', name);
  if (end == ".tsv") return separated(view, '\t', name);
  std::vector<ordered_json> rows;
  if (end == ".json") {
    const ordered_json all = parsed(view, name);
    if (!all.is_array()) throw user_error("{}: not a list of objects", name);
    for (const ordered_json& row : all) rows.push_back(row);
  } else if (end == ".jsonl") {
    for (size_t at = 0, line = 1; at < view.size(); ++line) {
      const size_t stop = std::min(view.find('\n', at), view.size());
      const std::string_view one = view.substr(at, stop - at);
      at = stop + 1;
      if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      rows.push_back(parsed(one, fmt::format("{}:{}", name, line)));
    }
  } else {
    throw Error(Exit::user, fmt::format("{}: its name does not say what it holds", name),
                "data are .jsonl, .json, .csv or .tsv files, each also as .gz");
  }
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].is_object()) throw user_error("{}: row {} is no object", name, i + 1);
  return rows;
}

}  // namespace lumen::model
