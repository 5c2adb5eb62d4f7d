#include "model/data/examples/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/structured/json.h"
#include "model/data/rows/file_text.h"
#include "model/data/rows/rows.h"

namespace lumen::model::data {
namespace {

namespace fs = std::filesystem;

// Documents of rows: each is an object with "text".
void read_rows(const fs::path& path, std::vector<std::string>& out) {
  const auto reader = open_rows(path);
  for (DataRow row; reader->next(&row);) {
    parse_row(&row);
    const std::string where = fmt::format("{}:{}", path.string(), row.line);
    if (!row.fault.empty())
      throw user_error("{}: {}{}{}", where, row.fault, row.detail.empty() ? "" : ": ", row.detail);
    out.push_back(json_text(row.value, "text", where));
  }
}

void read_one(const fs::path& path, Documents& out) {
  {
    const MappedFile file(path);
    out.files.push_back({path.string(), file.bytes().size(), hash_bytes(file.bytes().data(), file.bytes().size())});
  }
  if (path.extension() == ".jsonl")
    read_rows(path, out.contents);
  else
    out.contents.emplace_back(FileText(path).text());
}

// Where a text is cut so that `share` of it stays in front: on a character boundary.
size_t cut_at(std::string_view text, double share) {
  size_t at = std::min(text.size(), static_cast<size_t>(text.size() * share));
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

void check_share(double share) {
  if (!(share >= 0 && share < 1)) throw usage_error("the share of validation text must be in [0, 1), not {}", share);
}

// A mixing of two numbers into 64 random bits (the finalizer of SplitMix64, applied twice).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, n): the high half of a 64 x 64 bit product; the bias is below n / 2^64.
__extension__ using Wide = unsigned __int128;
uint64_t below(uint64_t bits, uint64_t n) {
  return static_cast<uint64_t>((static_cast<Wide>(bits) * n) >> 64);
}

void copy_window(const std::vector<text::TokenId>& tokens, int64_t first, int64_t length,
                 std::vector<text::TokenId>& out) {
  out.insert(out.end(), tokens.begin() + first, tokens.begin() + first + length + 1);
}

}  // namespace

Documents load_documents(const fs::path& path) {
  Documents out;
  if (!fs::is_directory(path)) {
    read_one(path, out);
    out.one_text = path.extension() != ".jsonl";
    return out;
  }
  std::vector<fs::path> files;
  for (const fs::path& file : list_below(path)) {
    const std::string extension = file.extension().string();
    if (fs::is_regular_file(file) && (extension == ".txt" || extension == ".md" || extension == ".jsonl"))
      files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw user_error("'{}' holds no .txt, .md or .jsonl file", path.string());
  for (const fs::path& file : files) read_one(file, out);
  return out;
}

Documents embedded_documents() {
  const std::string_view text = embedded_text();
  return {{std::string(text)}, {{"", text.size(), hash_text(text)}}, true};
}

std::vector<std::string> read_documents(const fs::path& path) {
  return load_documents(path).contents;
}

std::string_view embedded_text() {
  return embedded::data().at(0).text;
}

Dataset Dataset::from_text(std::string_view text, const text::Tokenizer& tokenizer, DatasetOptions options) {
  check_share(options.validation);
  const size_t cut = cut_at(text, 1 - options.validation);
  Dataset out;
  out.train_ = tokenizer.encode(text.substr(0, cut));
  out.validation_ = tokenizer.encode(text.substr(cut));
  return out;
}

Dataset Dataset::from_documents(const std::vector<std::string>& documents, const text::Tokenizer& tokenizer,
                                DatasetOptions options) {
  check_share(options.validation);
  size_t total = 0;
  for (const std::string& d : documents) total += d.size();
  const double train_bytes = total * (1 - options.validation);
  std::vector<text::TokenId> end;  // a list, because g++ 12 takes an optional here for uninitialized
  if (const auto eos = tokenizer.eos(); eos && options.separate) end.push_back(*eos);
  Dataset out;
  const auto put = [&](std::string_view text, bool whole, std::vector<text::TokenId>& to) {
    const std::vector<text::TokenId> ids = tokenizer.encode(text);
    to.insert(to.end(), ids.begin(), ids.end());
    if (whole) to.insert(to.end(), end.begin(), end.end());
  };
  double before = 0;
  for (const std::string& d : documents) {
    const double after = before + d.size();
    if (after <= train_bytes) {
      put(d, true, out.train_);
    } else if (before >= train_bytes) {
      put(d, true, out.validation_);
    } else {  // the cut goes through this document
      const size_t cut = cut_at(d, (train_bytes - before) / d.size());
      put(std::string_view(d).substr(0, cut), false, out.train_);
      put(std::string_view(d).substr(cut), true, out.validation_);
    }
    before = after;
  }
  return out;
}

Dataset Dataset::from(const Documents& documents, const text::Tokenizer& tokenizer, DatasetOptions options) {
  Dataset out = documents.one_text ? from_text(documents.contents.at(0), tokenizer, options)
                                   : from_documents(documents.contents, tokenizer, options);
  out.files_ = documents.files;
  return out;
}

Dataset Dataset::load(const fs::path& path, const text::Tokenizer& tokenizer, DatasetOptions options) {
  return from(load_documents(path), tokenizer, options);
}

Hash Dataset::token_hash() const {
  const Hash parts[] = {hash_bytes(train_.data(), train_.size() * sizeof(text::TokenId)),
                        hash_bytes(validation_.data(), validation_.size() * sizeof(text::TokenId))};
  return hash_bytes(parts, sizeof parts);
}

std::vector<text::TokenId> random_batch(const std::vector<text::TokenId>& tokens, uint64_t seed, uint64_t index,
                                        int64_t rows, int64_t length) {
  const int64_t size = tokens.size();
  if (length < 1 || rows < 1) throw usage_error("a batch of {} rows of {} tokens", rows, length);
  if (length >= size) {
    throw Error(Exit::user,
                fmt::format("the text has {} tokens; windows of {} need at least {}", size, length, length + 1),
                "use a longer text or a shorter context");
  }
  std::vector<text::TokenId> out;
  out.reserve(rows * (length + 1));
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t bits = mix(mix(mix(seed) ^ index) ^ row);
    copy_window(tokens, below(bits, size - length), length, out);
  }
  return out;
}

int64_t window_count(const std::vector<text::TokenId>& tokens, int64_t length) {
  if (length < 1) throw usage_error("windows of {} tokens", length);
  return tokens.empty() ? 0 : (std::ssize(tokens) - 1) / length;
}

std::vector<text::TokenId> window_batch(const std::vector<text::TokenId>& tokens, int64_t first, int64_t rows,
                                        int64_t length) {
  const int64_t count = window_count(tokens, length);
  if (first < 0 || rows < 1 || first > count - rows)
    throw usage_error("windows {} to {} of {}: the text has only {}", first, first + rows, length, count);
  std::vector<text::TokenId> out;
  out.reserve(rows * (length + 1));
  for (int64_t w = first; w < first + rows; ++w) copy_window(tokens, w * length, length, out);
  return out;
}

}  // namespace lumen::model::data
