#include "golden_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

#include "base/file/file.h"

namespace lumen::golden {
namespace {

constexpr size_t kMostLines = 30;        // shown of a difference
constexpr size_t kMostPairs = 16 << 20;  // of lines compared with each other

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool rewrites() {
  return std::getenv("LUMEN_BLESS") != nullptr;
}

// Lengths of the longest common subsequences of what lies behind each pair of places.
class Common {
 public:
  Common(std::span<const std::string_view> a, std::span<const std::string_view> b)
      : width_(b.size() + 1), lengths_((a.size() + 1) * width_) {
    for (size_t i = a.size(); i-- > 0;)
      for (size_t j = b.size(); j-- > 0;)
        lengths_[i * width_ + j] = a[i] == b[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  }
  uint32_t at(size_t i, size_t j) const { return lengths_[i * width_ + j]; }

 private:
  size_t width_;
  std::vector<uint32_t> lengths_;
};

}  // namespace

std::filesystem::path folder() {
  return std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/golden";
}

std::string difference(const std::string& before, const std::string& now) {
  const std::vector<std::string_view> all_before = lines_of(before), all_now = lines_of(now);
  std::span<const std::string_view> a = all_before, b = all_now;
  size_t first = 0;
  while (first < a.size() && first < b.size() && a[first] == b[first]) ++first;
  a = a.subspan(first);
  b = b.subspan(first);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a = a.first(a.size() - 1);
    b = b.first(b.size() - 1);
  }
  // Of texts with nothing in common the first lines say enough.
  if (a.size() * b.size() > kMostPairs) {
    a = a.first(std::min(a.size(), kMostLines));
    b = b.first(std::min(b.size(), kMostLines));
  }
  const Common common(a, b);
  std::string out;
  size_t shown = 0, left_out = 0;
  bool same = true;
  const auto show = [&](size_t line, char sign, std::string_view text) {
    if (shown++ >= kMostLines) {
      ++left_out;
      return;
    }
    if (same) out += fmt::format("line {}:\n", first + line + 1);
    same = false;
    out += fmt::format("{} {}\n", sign, text);
  };
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i;
      ++j;
      same = true;
    } else if (j == b.size() || (i < a.size() && common.at(i + 1, j) >= common.at(i, j + 1))) {
      show(i, '-', a[i]);
      ++i;
    } else {
      show(i, '+', b[j]);
      ++j;
    }
  }
  if (left_out > 0) out += fmt::format(".. and {} more lines\n", left_out);
  return out;
}

void expect_text(const std::string& file, const std::string& now) {
  const std::filesystem::path path = folder() / file;
  const std::string before = std::filesystem::exists(path) ? read_file(path) : "";
  if (before == now) return;
  if (rewrites()) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << now;
    return;
  }
  ADD_FAILURE() << "tests/golden/" << file << " is not what is made now (- committed, + now):\n"
                << difference(before, now)
                << "If the change is wanted: LUMEN_BLESS=1 ctest --test-dir build -R golden rewrites the texts; commit "
                   "them with what changed them.";
}

void expect_no_others(const std::string& room, const std::set<std::string>& files) {
  if (!std::filesystem::exists(folder() / room)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / room)) {
    const std::string name = entry.path().filename().string();
    if (files.contains(name)) continue;
    if (rewrites()) {
      std::filesystem::remove(entry.path());
    } else {
      ADD_FAILURE() << "tests/golden/" << room << "/" << name << " belongs to no case; LUMEN_BLESS=1 removes it";
    }
  }
}

void keep_text(const std::string& file, const std::function<std::string()>& text) {
  const char* named = std::getenv("LUMEN_KERNEL_TEXTS");
  if (!named) return;
  const std::filesystem::path path = std::filesystem::path(named) / file;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text();
}

}  // namespace lumen::golden
