// What can happen to a file that is kept between starts (base/sealed/sealed.h): a byte of every part of it is
// another, parts are missing, doubled or exchanged, or something else lies there. None of these may be taken.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file/file.h"

namespace lumen::run {

inline std::vector<std::pair<std::string, std::string>> damaged_forms(const std::string& whole) {
  constexpr size_t kHeader = 48;  // of what is kept: what it is, how long, and the seal
  std::vector<std::pair<std::string, std::string>> out;
  const auto flipped = [&](const std::string& what, size_t at, char bits) {
    std::string text = whole;
    text.at(at) = static_cast<char>(text.at(at) ^ bits);
    out.emplace_back(what, std::move(text));
  };
  for (size_t at = 0; at < kHeader; at += 8) flipped("byte " + std::to_string(at) + " of the header", at, 1);
  flipped("the header's last byte", kHeader - 1, char(0x80));
  flipped("the first byte", kHeader, 1);
  flipped("the middle", (kHeader + whole.size()) / 2, 0x20);
  flipped("the last byte", whole.size() - 1, 1);
  out.emplace_back("without the end", whole.substr(0, whole.size() - 1));
  out.emplace_back("the header alone", whole.substr(0, kHeader));
  out.emplace_back("something behind it", whole + '\0');
  out.emplace_back("twice", whole + whole);
  out.emplace_back("without the header", whole.substr(kHeader));
  out.emplace_back("nothing", "");
  out.emplace_back("zeros", std::string(whole.size(), '\0'));
  return out;
}

// In place, as somebody with the user's rights would: the file's mode stays.
inline void put_in_place(const std::filesystem::path& file, const std::string& content) {
  write_file_atomic(file, content);
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace lumen::run
