// The text of a data file in any encoding: mapped, unpacked from gzip, or converted from UTF-16 to UTF-8. Detected by
// content, not by name. Proved by tests/model/data/data_form_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file/file.h"

namespace lumen::model::data {

class FileText {
 public:
  // Error when the file cannot be read, is damaged, has an unsupported compression, or is invalid UTF-16.
  explicit FileText(const std::filesystem::path& file);
  FileText(const FileText&) = delete;
  FileText& operator=(const FileText&) = delete;

  std::string_view text() const { return text_; }  // without a byte order mark
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  MappedFile map_;
  std::string made_;  // where the mapped bytes are not the text
  std::string_view text_;
};

// Prints a note once per process: files are opened several times.
void note_once(const std::string& text);

using FileTextRef = std::unique_ptr<const FileText>;

}  // namespace lumen::model::data
