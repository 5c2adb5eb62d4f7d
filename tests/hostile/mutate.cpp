#include "hostile/mutate.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "fuzz/mutators/json_changes.h"

namespace lumen::hostile {
namespace {

constexpr uint64_t kNumbers[] = {0,
                                 1,
                                 2,
                                 3,
                                 31,
                                 32,
                                 33,
                                 255,
                                 256,
                                 4096,
                                 65535,
                                 65536,
                                 0x7fffffff,
                                 0x80000000,
                                 0xffffffff,
                                 0x100000000,
                                 0x3fffffffffffffff,
                                 0x7fffffffffffffff,
                                 0x8000000000000000,
                                 ~uint64_t{0}};
constexpr const char* kWords[] = {
    "0",  "1",       "-1",   "2147483648", "99999999999999999999", "1e308", "nan", "\"\"", "{}",
    "[]", "\x1b[2J", "\xff", "((((((((",   "\xe2\x80\xae",         "/",     "%",   "i",    "null"};

// Places near the front come more often: there lie headers and counts.
size_t place_in(size_t size, std::mt19937_64& chance) {
  if (size == 0) return 0;
  const size_t reach = chance() % 3 == 0 ? size : std::min<size_t>(size, size_t{16} << (chance() % 12));
  return chance() % reach;
}

void change_bytes(std::string& bytes, std::mt19937_64& chance) {
  const size_t at = place_in(bytes.size(), chance);
  const size_t length = std::min<size_t>(bytes.size() - at, size_t{1} << (chance() % 10));
  switch (bytes.empty() ? 5 : chance() % 10) {
    case 0:
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (chance() % 8)));
      break;
    case 2:
      bytes[at] = static_cast<char>(chance());
      break;
    case 3:
    case 4:
    case 8:
    case 9: {  // a number of one of the usual widths, as little endians have it
      const uint64_t value = chance() % 4 == 0 ? chance() : kNumbers[chance() % std::size(kNumbers)];
      const size_t width = std::min<size_t>(size_t{1} << (chance() % 4), bytes.size() - at);
      std::memcpy(bytes.data() + at, &value, width);
      break;
    }
    case 5:
      bytes.insert(at, kWords[chance() % std::size(kWords)]);
      break;
    case 6:
      if (chance() % 2 == 0)
        bytes.resize(at);
      else
        bytes.erase(at, length);
      break;
    default: {
      const std::string part = bytes.substr(place_in(bytes.size(), chance), length);
      if (chance() % 2 == 0)
        bytes.insert(at, part);
      else
        bytes.replace(at, part.size(), part);
    }
  }
}

bool change_json(std::string& text, std::mt19937_64& chance) {
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(text, nullptr, false);
  if (root.is_discarded() || !root.is_structured()) return false;
  std::mt19937 small(static_cast<uint32_t>(chance()));
  json_changes::mutate(root, small);
  text = root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return true;
}

bool change_safetensors(std::string& bytes, std::mt19937_64& chance) {
  uint64_t length = 0;
  if (bytes.size() < 8) return false;
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8) return false;
  std::string header = bytes.substr(8, length);
  if (!change_json(header, chance)) return false;
  const uint64_t now = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &now, 8);
  bytes = out + header + bytes.substr(8 + length);
  return true;
}

void change_text(std::string& text, std::mt19937_64& chance) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    lines.push_back(text.substr(at, end - at + 1));
    at = end + 1;
  }
  if (lines.empty()) return change_bytes(text, chance);
  std::string& line = lines[chance() % lines.size()];
  const std::string other = lines[chance() % lines.size()];
  switch (chance() % 5) {
    case 0:
      line.clear();
      break;
    case 1:
      line += other;
      break;
    case 2:
      line = other;
      break;
    case 3: {  // a number of the line becomes another one
      const size_t at = line.find_first_of("0123456789", chance() % line.size());
      if (at == std::string::npos) break;
      const size_t end = std::min(line.find_first_not_of("0123456789", at), line.size());
      line.replace(at, end - at, std::to_string(kNumbers[chance() % std::size(kNumbers)]));
      break;
    }
    default: {  // a word of another line
      const size_t at = chance() % line.size(), from = chance() % other.size();
      line.replace(at, std::min<size_t>(chance() % 12, line.size() - at), other.substr(from, chance() % 12));
    }
  }
  text.clear();
  for (const std::string& l : lines) text += l;
}

}  // namespace

Make make_of(const std::string& name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  if (ends(".json")) return Make::json;
  if (ends(".safetensors")) return Make::safetensors;
  if (ends(".lum") || ends(".toml") || ends(".jinja") || ends(".gbnf") || ends(".txt") || ends(".jsonl"))
    return Make::text;
  return Make::bytes;
}

std::string mutated(std::string bytes, Make make, std::mt19937_64& chance) {
  for (uint64_t n = 1 + chance() % 3; n > 0; --n) {
    const bool whole = chance() % 4 != 0;
    if (make == Make::json && whole && change_json(bytes, chance)) continue;
    if (make == Make::safetensors && whole && change_safetensors(bytes, chance)) continue;
    if (make == Make::text && whole) {
      change_text(bytes, chance);
      continue;
    }
    change_bytes(bytes, chance);
  }
  return bytes;
}

}  // namespace lumen::hostile
