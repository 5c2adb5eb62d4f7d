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
  constexpr size_t kTrailer = 64;  // what it is, how long, a salt, and the seal
  const size_t end = whole.size() - kTrailer;
  std::vector<std::pair<std::string, std::string>> out;
  const auto flipped = [&](const std::string& what, size_t at, char bits) {
    std::string text = whole;
    text.at(at) = static_cast<char>(text.at(at) ^ bits);
    out.emplace_back(what, std::move(text));
  };
  for (size_t at = 0; at < kTrailer; at += 8) flipped("byte " + std::to_string(at) + " of the trailer", end + at, 1);
  flipped("the last byte of the trailer", whole.size() - 1, char(0x80));
  flipped("the first byte", 0, 1);
  flipped("the middle", end / 2, 0x20);
  flipped("the last byte", end - 1, 1);
  out.emplace_back("without the end", whole.substr(0, whole.size() - 1));
  out.emplace_back("the trailer alone", whole.substr(end));
  out.emplace_back("something behind it", whole + '\0');
  out.emplace_back("twice", whole + whole);
  out.emplace_back("without the trailer", whole.substr(0, end));
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
