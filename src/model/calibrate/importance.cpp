#include "model/calibrate/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "model/file/gguf.h"

namespace lumen::model::calibrate {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr const char* kDatasets = "imatrix.datasets";
constexpr const char* kWindows = "imatrix.chunk_count";
constexpr const char* kLength = "imatrix.chunk_size";

Error wrong(const std::filesystem::path& path, const std::string& what) {
  return Error(Exit::user, fmt::format("{}: {}", path.string(), what), "`lumen imatrix` writes importance matrices");
}

void check(const std::filesystem::path& path, const std::string& name, const ImportanceEntry& e) {
  for (const double x : e.sums)
    if (!(x >= 0) || std::isinf(x)) throw wrong(path, fmt::format("'{}' has a sum of squares of {}", name, x));
  for (const double n : e.counts)
    if (!(n >= 0) || std::isinf(n)) throw wrong(path, fmt::format("'{}' counts {} rows", name, n));
}

std::vector<double> numbers_of(const std::filesystem::path& path, const file::StoredTensor& t) {
  if (t.element.format || t.element.scalar != Scalar::f32)
    throw wrong(path,
                fmt::format("'{}' is held in {}, not in f32", t.name,
                            t.element.format ? t.element.format->name : std::string(scalar_name(t.element.scalar))));
  std::vector<float> values(t.data.size() / sizeof(float));
  std::memcpy(values.data(), t.data.data(), values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

Importance read_gguf(const std::filesystem::path& path, const FormatLibrary& formats) {
  const file::GgufFile file(path, formats);
  if (file.metadata().text("general.type", "model") != "imatrix")
    throw wrong(path, "is a GGUF file, but no importance matrix (general.type is not 'imatrix')");
  Importance out;
  if (file.metadata().has(kDatasets)) out.datasets = file.metadata().texts(kDatasets);
  out.windows = file.metadata().integer(kWindows, 0);
  out.length = file.metadata().integer(kLength, 0);
  for (const file::StoredTensor& t : file.tensors()) {
    if (!t.name.ends_with(kSums)) {
      if (!t.name.ends_with(kCounts)) continue;  // other statistics
      const std::string name = t.name.substr(0, t.name.size() - kCounts.size());
      if (!file.find(name + std::string(kSums)))
        throw wrong(path, fmt::format("'{}' is counted, but has no sums", name));
      continue;
    }
    const std::string name = t.name.substr(0, t.name.size() - kSums.size());
    const file::StoredTensor* counts = file.find(name + std::string(kCounts));
    if (!counts) throw wrong(path, fmt::format("'{}' has sums, but no counts", name));
    ImportanceEntry e;
    e.columns = t.columns();
    e.sums = numbers_of(path, t);
    e.counts = numbers_of(path, *counts);
    if (e.columns < 1 || e.counts.empty() || e.matrices() != t.rows())
      throw wrong(path, fmt::format("'{}' has sums of {} matrices, and counts of {}", name, t.rows(), e.matrices()));
    check(path, name, e);
    out.entries.emplace(name, std::move(e));
  }
  return out;
}

// Reader of the older form: 32-bit little-endian numbers.
class Bytes {
 public:
  Bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) : path_(path), left_(bytes) {}
  bool at_end() const { return left_.empty(); }
  int64_t count(const char* what, int64_t size) {
    int32_t n = 0;
    std::memcpy(&n, take(what, sizeof n).data(), sizeof n);
    if (n < 0 || n > std::ssize(left_) / size)
      throw wrong(path_, fmt::format("{} is {}, with {} bytes left", what, n, left_.size()));
    return n;
  }
  int64_t number(const char* what) {
    int32_t n = 0;
    std::memcpy(&n, take(what, sizeof n).data(), sizeof n);
    if (n < 0) throw wrong(path_, fmt::format("{} is {}", what, n));
    return n;
  }
  std::span<const std::byte> take(const char* what, int64_t bytes) {
    if (bytes > std::ssize(left_)) throw wrong(path_, fmt::format("ends within {}", what));
    const std::span<const std::byte> out = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return out;
  }
  std::string text(const char* what) {
    const std::span<const std::byte> bytes = take(what, count(what, 1));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> left_;
};

Importance read_windows(const std::filesystem::path& path, std::span<const std::byte> all) {
  Importance out;
  Bytes in(path, all);
  const int64_t entries = in.count("the number of weights", 12);
  if (entries == 0) throw wrong(path, "names no weights");
  for (int64_t i = 0; i < entries; ++i) {
    const std::string name = in.text("a weight's name");
    const int64_t windows = in.number("the number of windows");
    const int64_t columns = in.count("the number of columns", sizeof(float));
    if (name.empty() || columns == 0) throw wrong(path, fmt::format("weight {} has no name or no columns", i));
    ImportanceEntry e;
    e.columns = columns;
    std::vector<float> values(columns);
    std::memcpy(values.data(), in.take("the numbers of a weight", columns * sizeof(float)).data(),
                columns * sizeof(float));
    e.sums.assign(values.begin(), values.end());
    e.counts = {double(std::max<int64_t>(windows, 1))};
    check(path, name, e);
    if (!out.entries.emplace(name, std::move(e)).second) throw wrong(path, fmt::format("'{}' is there twice", name));
  }
  if (in.at_end()) return out;
  out.windows = in.number("the number of windows of all");
  if (!in.at_end())
    if (std::string name = in.text("the name of the text"); !name.empty()) out.datasets = {std::move(name)};
  return out;
}

void write_gguf(const Importance& importance, const std::filesystem::path& path) {
  file::GgufMetadata metadata;
  metadata.set("general.type", std::string("imatrix"));
  metadata.set(kDatasets, file::GgufArray(importance.datasets));
  metadata.set(kWindows, uint32_t(importance.windows));
  metadata.set(kLength, uint32_t(importance.length));
  std::vector<file::TensorSpec> specs;
  const auto announce = [&](std::string name, int64_t rows, int64_t columns) {
    file::TensorSpec spec;
    spec.name = std::move(name);
    spec.shape = {rows, columns};
    spec.element = {Scalar::f32, nullptr};
    specs.push_back(std::move(spec));
  };
  for (const auto& [name, e] : importance.entries) {
    announce(name + std::string(kSums), e.matrices(), e.columns);
    announce(name + std::string(kCounts), e.matrices(), 1);
  }
  file::GgufWriter writer(path, std::move(metadata), specs);
  const auto write = [&](const std::vector<double>& numbers) {
    const std::vector<float> values(numbers.begin(), numbers.end());
    writer.write({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
  };
  for (const auto& [name, e] : importance.entries) {
    write(e.sums);
    write(e.counts);
  }
  writer.commit();
}

void write_windows(const Importance& importance, const std::filesystem::path& path) {
  AtomicFile file(path);
  const auto put = [&](const void* from, size_t bytes) { file.write(from, bytes); };
  const auto number = [&](int64_t n) {
    const auto x = static_cast<int32_t>(n);
    put(&x, sizeof x);
  };
  const auto text = [&](const std::string& s) {
    number(s.size());
    put(s.data(), s.size());
  };
  const int64_t windows = std::max<int64_t>(importance.windows, 1);
  number(importance.entries.size());
  for (const auto& [name, e] : importance.entries) {
    text(name);
    number(windows);
    number(e.sums.size());
    std::vector<float> values(e.sums.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double count = e.counts[i / e.columns];
      values[i] = count > 0 ? e.sums[i] / count * windows : 0;
    }
    put(values.data(), values.size() * sizeof(float));
  }
  number(importance.windows);
  text(importance.datasets.empty() ? std::string() : importance.datasets.back());
  file.commit();
}

}  // namespace

std::vector<float> ImportanceEntry::means(int64_t matrix) const {
  std::vector<float> out;
  if (counts[matrix] <= 0) return out;
  for (int64_t c = 0; c < columns; ++c) out.push_back(sums[matrix * columns + c] / counts[matrix]);
  return out;
}

ImportanceEntry ImportanceEntry::unstacked(int64_t of_matrices, int64_t of_columns) const {
  if (matrices() != 1 || of_matrices < 2 || of_columns < 1 || columns % of_columns != 0 ||
      columns / of_columns != of_matrices)
    return *this;
  ImportanceEntry out{of_columns, sums, {}};
  for (auto at = sums.begin(); at != sums.end(); at += of_columns) {
    const bool is_reached = std::any_of(at, at + of_columns, [](double x) { return x > 0; });
    out.counts.push_back(is_reached ? counts[0] : 0);
  }
  return out;
}

void Importance::add(const Importance& more) {
  for (const auto& [name, theirs] : more.entries) {
    const auto [found, fresh] = entries.try_emplace(name, theirs);
    if (fresh) continue;
    ImportanceEntry& ours = found->second;
    if (ours.columns != theirs.columns || ours.counts.size() != theirs.counts.size())
      throw user_error("'{}' has {} matrices of {} columns in one importance matrix, and {} of {} in another", name,
                       ours.matrices(), ours.columns, theirs.matrices(), theirs.columns);
    for (size_t i = 0; i < ours.sums.size(); ++i) ours.sums[i] += theirs.sums[i];
    for (size_t i = 0; i < ours.counts.size(); ++i) ours.counts[i] += theirs.counts[i];
  }
  datasets.insert(datasets.end(), more.datasets.begin(), more.datasets.end());
  windows += more.windows;
  if (length == 0) length = more.length;
}

Importance read_importance(const std::filesystem::path& path, const FormatLibrary& formats) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) return read_gguf(path, formats);
  return read_windows(path, bytes);
}

void write_importance(const Importance& importance, const std::filesystem::path& path, ImportanceForm form) {
  form == ImportanceForm::gguf ? write_gguf(importance, path) : write_windows(importance, path);
}

}  // namespace lumen::model::calibrate
