// What a user typed, kept between runs: one JSON string per line, so that a message of several lines is one entry.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lumen::cli {

class InputHistory {
 public:
  static constexpr size_t kMost = 1000;                 // entries; older ones are dropped
  static constexpr size_t kLongest = size_t{64} << 10;  // bytes of an entry; longer ones are not kept

  // Reads the file. An empty path keeps nothing. A history that cannot be read is empty: it must not hinder a chat.
  explicit InputHistory(std::filesystem::path file);
  // $XDG_STATE_HOME/lumen/NAME or ~/.local/state/lumen/NAME; empty where there is no home.
  static std::filesystem::path file_of(const std::string& name);

  const std::vector<std::string>& entries() const { return entries_; }  // the oldest first
  // Appends to the file, which only its owner may read (0600). A text equal to the last entry is not added.
  void add(const std::string& text);

 private:
  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

}  // namespace lumen::cli
