#include "model/data/rows/rows.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "model/data/parquet/parquet.h"
#include "model/data/rows/document.h"
#include "model/data/rows/file_text.h"
#include "model/data/rows/form.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestRow = 64;
constexpr std::string_view kSpace = " \t\r\n";

class LineReader final : public RowReader {
 public:
  explicit LineReader(FileTextRef file) : file_(std::move(file)) {}
  bool next(DataRow* row) override {
    const std::string_view text = file_->text();
    while (at_ < text.size()) {
      const size_t end = std::min(text.find('\n', at_), text.size());
      const std::string_view line = text.substr(at_, end - at_);
      at_ = end + 1;
      ++line_;
      if (line.find_first_not_of(kSpace) == std::string_view::npos) continue;
      *row = {.line = line_, .text = line};
      return true;
    }
    return false;
  }

 private:
  FileTextRef file_;
  size_t at_ = 0;
  uint64_t line_ = 0;
};

// Elements of a list, or consecutive objects. Every call of next() advances in the text or ends it.
class ListReader final : public RowReader {
 public:
  explicit ListReader(FileTextRef file) : file_(std::move(file)), text_(file_->text()) {
    skip_space();
    is_list_ = at_ < text_.size() && text_[at_] == '[';
    if (is_list_) ++at_;
    if (!is_list_ && (at_ >= text_.size() || text_[at_] != '{')) throw no_list();
  }

  bool next(DataRow* row) override {
    skip_space();
    if (is_list_ && at_ < text_.size() && text_[at_] == ']') {
      ++at_;
      skip_space();
      if (at_ < text_.size()) throw user_error("{}:{}: text after the list", file_->name(), line_);
      return false;
    }
    if (at_ >= text_.size()) {
      if (is_list_) throw user_error("{}:{}: the list has no end", file_->name(), line_);
      if (count_ == 1) throw no_list();
      return false;
    }
    if (is_list_ && count_ > 0) {
      if (text_[at_] != ',') throw user_error("{}:{}: no comma between two rows of the list", file_->name(), line_);
      ++at_;
      skip_space();
    }
    if (!is_list_ && text_[at_] != '{') throw no_object();
    *row = {.line = line_};
    const size_t end = end_of_json_value(text_, at_);
    if (end == std::string_view::npos)
      throw user_error("{}:{}: the row that begins there has no end", file_->name(), line_);
    row->text = text_.substr(at_, end - at_);
    if (row->text.empty()) row->fault = "no valid JSON";
    line_ += std::count(row->text.begin(), row->text.end(), '\n');
    at_ = end;
    ++count_;
    return true;
  }

 private:
  Error no_list() const {
    return Error(Exit::user, fmt::format("{}: not a list of objects", file_->name()),
                 "rows are in a list, [{...}, {...}], or one object a line");
  }
  Error no_object() const {
    const bool is_comma = text_[at_] == ',';
    return Error(Exit::user,
                 fmt::format("{}:{}: '{}' after row {}, where the next row or the end is expected", file_->name(),
                             line_, printable(text_.substr(at_, 1)), count_),
                 is_comma ? "objects separated by commas must be in a list: put [ before and ] after them"
                          : "there may be a bracket or comma too many");
  }
  void skip_space() {
    for (; at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos; ++at_) line_ += text_[at_] == '\n';
  }

  FileTextRef file_;
  std::string_view text_;
  size_t at_ = 0, count_ = 0;
  uint64_t line_ = 1;
  bool is_list_ = false;
};

class TableReader final : public RowReader {
 public:
  // The first `skipped` bytes are not part of the table.
  TableReader(FileTextRef file, char separator, size_t skipped)
      : file_(std::move(file)), text_(file_->text()), separator_(separator), at_(skipped), line_(skipped > 0) {
    if (!record(&header_)) throw user_error("{}: no header line", file_->name());
    if (!header_fault_.empty()) throw user_error("{}:1: {}", file_->name(), header_fault_);
    for (const std::string& field : header_)
      if (text::utf8_valid_run(field, 0) != field.size()) throw user_error("{}:1: no valid UTF-8", file_->name());
    if (std::set<std::string>(header_.begin(), header_.end()).size() != header_.size())
      throw user_error("{}:1: the header names a column twice", file_->name());
  }

  bool next(DataRow* row) override {
    std::vector<std::string> fields;
    do {
      *row = {.line = line_ + 1};
      header_fault_.clear();
      if (!record(&fields)) return false;
    } while (fields.size() == 1 && fields[0].empty() && header_fault_.empty());
    if (!header_fault_.empty()) {
      row->fault = std::move(header_fault_);
      return true;
    }
    if (fields.size() != header_.size()) {
      row->fault = "another number of fields than the header";
      row->detail = fmt::format("{} fields, but the header names {}", fields.size(), header_.size());
      return true;
    }
    row->value = ordered_json::object();
    for (size_t i = 0; i < fields.size(); ++i) {
      if (text::utf8_valid_run(fields[i], 0) != fields[i].size()) {
        row->fault = "no valid UTF-8";
        return true;
      }
      row->value.push_back({header_[i], std::move(fields[i])});
    }
    return true;
  }

 private:
  // Fields of the next record, which spans several lines where a quoted field does. False at the end of the text.
  bool record(std::vector<std::string>* out) {
    if (at_ >= text_.size()) return false;
    std::vector<std::string>& fields = *out;
    fields.assign(1, {});
    const bool quotes = separator_ != '\t';
    for (const uint64_t first = ++line_;;) {
      if (quotes && at_ < text_.size() && text_[at_] == '"' && fields.back().empty()) {
        for (++at_;; ++at_) {
          // The text inside an unclosed field cannot be split into rows.
          if (at_ >= text_.size()) throw user_error("{}:{}: a quoted field has no end", file_->name(), first);
          if (text_[at_] == '"') {
            if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
            ++at_;
          }
          line_ += text_[at_] == '\n';
          fields.back() += text_[at_];
        }
        ++at_;
        if (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r')
          header_fault_ = "text after a quoted field";
      }
      if (at_ >= text_.size()) return true;
      const char c = text_[at_++];
      if (c == '\n') return true;
      if (c == '\r' && (at_ >= text_.size() || text_[at_] == '\n')) continue;
      if (c == separator_)
        fields.emplace_back();
      else
        fields.back() += c;
    }
  }

  FileTextRef file_;
  std::string_view text_;
  char separator_;
  size_t at_;
  uint64_t line_;
  std::vector<std::string> header_;
  std::string header_fault_;
};

class ParquetReader final : public RowReader {
 public:
  explicit ParquetReader(FileTextRef file)
      : file_(std::move(file)), rows_(read_parquet(file_->text(), file_->name())) {}
  bool next(DataRow* row) override { return rows_->next(row); }

 private:
  FileTextRef file_;
  std::unique_ptr<RowReader> rows_;
};

// Rows that are all in memory.
class MadeReader final : public RowReader {
 public:
  explicit MadeReader(std::vector<DataRow> rows) : rows_(std::move(rows)) {}
  bool next(DataRow* row) override {
    if (at_ == rows_.size()) return false;
    *row = std::move(rows_[at_++]);
    return true;
  }

 private:
  std::vector<DataRow> rows_;
  size_t at_ = 0;
};

std::vector<DataRow> text_rows(const FileText& file) {
  DataRow row{.line = 1};
  if (text::utf8_valid_run(file.text(), 0) == file.text().size())
    row.value = {{"text", file.text()}};
  else
    row.fault = "no valid UTF-8";
  return {std::move(row)};
}

// The file name's extension, without .gz.
std::string ending_of(std::filesystem::path file) {
  if (file.extension() == ".gz") file = file.stem();
  return file.extension().string();
}

constexpr std::array<std::string_view, 10> kEndings = {".jsonl",   ".ndjson", ".json", ".csv",      ".tsv",
                                                       ".parquet", ".txt",    ".md",   ".markdown", ".dlm"};

}  // namespace

bool is_row_file(const std::filesystem::path& file) {
  return std::find(kEndings.begin(), kEndings.end(), ending_of(file)) != kEndings.end();
}

std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file) {
  if (!is_row_file(file)) {
    throw Error(Exit::user, fmt::format("{}: its file name has no known ending", file.string()),
                "data are .jsonl, .json, .csv, .tsv, .parquet, .txt, .md or .dlm files, each also as .gz");
  }
  auto text = std::make_unique<const FileText>(file);
  const FoundForm found = form_of_rows(text->text(), ending_of(file));
  if (!found.difference.empty())
    note_once(fmt::format("'{}' contains {}, unlike its name: it is read as such", file.string(), found.difference));
  switch (found.form) {
    case TextForm::lines:
      return std::make_unique<LineReader>(std::move(text));
    case TextForm::list:
      return std::make_unique<ListReader>(std::move(text));
    case TextForm::table:
      return std::make_unique<TableReader>(std::move(text), found.separator, found.skipped);
    case TextForm::parquet:
      return std::make_unique<ParquetReader>(std::move(text));
    case TextForm::text:
      return std::make_unique<MadeReader>(text_rows(*text));
    case TextForm::document:
      break;
  }
  return std::make_unique<MadeReader>(document_rows(text->text()));
}

void parse_row(DataRow* row) {
  if (row->text.empty() || !row->fault.empty()) return;
  try {
    row->value = parse_ordered_json(row->text, "", kDeepestRow);
    if (!row->value.is_object()) row->fault = "no JSON object";
  } catch (const Error& error) {
    row->fault = "no valid JSON";
    row->detail = error.hint().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.hint());
  }
  row->text = {};
}

}  // namespace lumen::model::data
