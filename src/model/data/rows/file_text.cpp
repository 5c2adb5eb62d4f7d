#include "model/data/rows/file_text.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "model/data/reader/unpack.h"
#include "model/text/unicode/unicode.h"
#include "run/device/require.h"

namespace lumen::model::data {
namespace {

constexpr uint64_t kLargestUnpacked = uint64_t{1} << 36;
constexpr size_t kLookedAt = 4096;  // bytes examined to detect the encoding

enum class Order { little, big };

struct Utf16 {
  Order order;
  bool marked;  // has a byte order mark
};

// Detected by the mark, or by zeros in nearly every other byte only: punctuation and digits are ASCII in any language,
// and UTF-8 text has no zeros at all.
std::optional<Utf16> utf16_of(std::string_view bytes) {
  if (bytes.starts_with("\xff\xfe")) return Utf16{Order::little, true};
  if (bytes.starts_with("\xfe\xff")) return Utf16{Order::big, true};
  const size_t count = std::min(bytes.size(), kLookedAt) / 2;
  if (count < 2 || bytes.size() % 2 != 0) return std::nullopt;
  size_t even = 0, odd = 0;
  for (size_t i = 0; i < count; ++i) {
    even += bytes[2 * i] == 0;
    odd += bytes[2 * i + 1] == 0;
  }
  if (odd > count / 8 && even <= odd / 8) return Utf16{Order::little, false};
  if (even > count / 8 && odd <= even / 8) return Utf16{Order::big, false};
  return std::nullopt;
}

// `bytes` without a byte order mark.
std::string from_utf16(std::string_view bytes, Order order, const std::string& name) {
  if (bytes.size() % 2 != 0) throw user_error("{}: UTF-16 of an odd number of bytes: it has been cut", name);
  const int64_t most = std::ssize(bytes) / 2 * 3;
  run::require_host_memory(fmt::format("reading '{}'", name), {{"its text as UTF-8", most}},
                           "write the file as UTF-8: iconv -f UTF-16 -t UTF-8");
  std::string out;
  out.reserve(bytes.size() / 2);
  uint64_t line = 1;
  const auto unit = [&](size_t at) -> char32_t {
    const uint8_t a = bytes[at], b = bytes[at + 1];
    return order == Order::little ? a | b << 8 : a << 8 | b;
  };
  for (size_t at = 0; at < bytes.size(); at += 2) {
    char32_t c = unit(at);
    if (c >= 0xd800 && c < 0xe000) {
      const char32_t low = at + 2 < bytes.size() ? unit(at + 2) : 0;
      if (c >= 0xdc00 || low < 0xdc00 || low >= 0xe000)
        throw user_error("{}:{}: half a character of UTF-16 at byte {}", name, line, at);
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
      at += 2;
    }
    line += c == '\n';
    text::utf8_append(out, c);
  }
  return out;
}

}  // namespace

void note_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(text).second) note(text);
}

FileText::FileText(const std::filesystem::path& file) : name_(file.string()), map_(file) {
  const auto bytes = map_.bytes();
  text_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (is_gzip(text_)) {
    text_ = made_ = gunzip(text_, name_, kLargestUnpacked);
  } else if (const std::string packing = foreign_packing(text_); !packing.empty()) {
    throw Error(Exit::user, fmt::format("{}: packed with {}, which is not read", name_, packing),
                "unpack it, or pack it with gzip");
  } else if (file.extension() == ".gz") {
    note_once(fmt::format("'{}' has the name of a compressed file, but is not compressed: it is read as it is", name_));
  }
  if (text_.starts_with(std::string_view("\xff\xfe\0\0", 4)) || text_.starts_with(std::string_view("\0\0\xfe\xff", 4)))
    throw Error(Exit::user, fmt::format("{}: written in UTF-32, which is not read", name_),
                "write it as UTF-8: iconv -f UTF-32 -t UTF-8");
  if (const auto form = text_.starts_with("PAR1") ? std::nullopt : utf16_of(text_)) {
    const bool little = form->order == Order::little;
    std::string text = from_utf16(text_.substr(form->marked ? 2 : 0), form->order, name_);
    text_ = made_ = std::move(text);
    note_once(fmt::format("'{}' is written in UTF-16{}, and read as UTF-8", name_, little ? "LE" : "BE"));
  }
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
}

}  // namespace lumen::model::data
