// The text of a data file, whatever it is stored as: mapped as it is, unpacked where it is gzip data, and turned into
// UTF-8 where it is UTF-16. What its bytes are decides, not its name. Proved by tests/model/data/data_form_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/file/file.h"

namespace lumen::model {

class FileText {
 public:
  // Error when the file cannot be read, is damaged, is packed with something that is not read here, or is UTF-16 with
  // characters that are none.
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

// A note that is told once in a process: files are opened several times on the way to their rows.
void note_once(const std::string& text);

using FileTextRef = std::unique_ptr<const FileText>;

}  // namespace lumen::model
