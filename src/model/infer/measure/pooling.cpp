#include "model/infer/measure/pooling.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/modules/modules.h"

namespace lumen::model::infer {
namespace {

constexpr double kLargestMagnitude = 32760;

// Pooling types of GGUF files.
constexpr std::pair<int64_t, Pooling> kNumbers[] = {
    {0, Pooling::none}, {1, Pooling::mean}, {2, Pooling::first}, {3, Pooling::last}};

// Options, and names of modes in folders.
constexpr std::pair<const char*, Pooling> kNames[] = {{"mean", Pooling::mean},          {"cls", Pooling::first},
                                                      {"last", Pooling::last},          {"max", Pooling::largest},
                                                      {"mean-sqrt-len", Pooling::root}, {"weighted", Pooling::weighted},
                                                      {"none", Pooling::none}};
constexpr std::pair<const char*, Pooling> kModes[] = {{"mean", Pooling::mean},
                                                      {"cls", Pooling::first},
                                                      {"lasttoken", Pooling::last},
                                                      {"max", Pooling::largest},
                                                      {"mean_sqrt_len_tokens", Pooling::root},
                                                      {"weightedmean", Pooling::weighted}};

constexpr int64_t kByHead = 4;  // a head of the family scores pairs; vectors have no pooling of their own

std::optional<Pooling> pooling_of_number(int64_t number) {
  for (const auto& [own, pooling] : kNumbers)
    if (own == number) return pooling;
  return std::nullopt;
}

}  // namespace

std::span<const std::pair<const char*, Pooling>> pooling_names() {
  return kNames;
}

std::optional<Pooling> pooling_of(const arch::Model& model, const std::filesystem::path& path) {
  const std::string key = model.family->gguf_architecture() + ".pooling_type";
  if (model.metadata.has(key)) {
    const int64_t number = model.metadata.integer(key);
    if (number == kByHead && model.family->has_function("scores")) return std::nullopt;
    if (const auto pooling = pooling_of_number(number)) return pooling;
    throw Error(Exit::user, fmt::format("{}: {} = {} is not supported", path.string(), key, number),
                "choose with --pooling mean, cls or last");
  }
  std::error_code failure;
  std::filesystem::path file = path / arch::kPoolingFile;
  if (const auto modules = arch::modules_of(path)) {
    if (!modules->unknown.empty())
      throw user_error("{}: modules of the type {} are not supported", (path / arch::kModulesFile).string(),
                       modules->unknown.front());
    if (modules->pooling.empty()) return std::nullopt;
    file = path / modules->pooling / "config.json";
  }
  if (!std::filesystem::exists(file, failure)) return std::nullopt;
  const auto mode = arch::pooling_mode(read_file(file, 1 << 20), file.string());
  if (!mode) return std::nullopt;
  for (const auto& [name, pooling] : kModes)
    if (*mode == name) return pooling;
  throw Error(Exit::user, fmt::format("{}: pooling by {} is not supported", file.string(), *mode),
              "choose with --pooling mean, cls or last");
}

std::vector<std::vector<float>> pooled(std::span<const float> rows, size_t width, Pooling pooling) {
  LUMEN_CHECK(width > 0 && !rows.empty() && rows.size() % width == 0);
  const size_t count = rows.size() / width;
  const auto row = [&](size_t i) {
    return std::vector<float>(rows.begin() + i * width, rows.begin() + (i + 1) * width);
  };
  switch (pooling) {
    case Pooling::none: {
      std::vector<std::vector<float>> all;
      for (size_t i = 0; i < count; ++i) all.push_back(row(i));
      return all;
    }
    case Pooling::first:
      return {row(0)};
    case Pooling::last:
      return {row(count - 1)};
    case Pooling::largest: {
      std::vector<float> most = row(0);
      for (size_t i = 1; i < count; ++i)
        for (size_t d = 0; d < width; ++d) most[d] = std::max(most[d], rows[i * width + d]);
      return {std::move(most)};
    }
    case Pooling::mean:
    case Pooling::root:
    case Pooling::weighted:
      break;
  }
  const bool is_weighted = pooling == Pooling::weighted;
  double weights = 0;
  for (size_t i = 0; i < count; ++i) weights += is_weighted ? i + 1 : 1;
  const double divisor = pooling == Pooling::root ? std::sqrt(weights) : weights;
  std::vector<float> out(width);
  for (size_t d = 0; d < width; ++d) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += (is_weighted ? i + 1 : 1) * double{rows[i * width + d]};
    out[d] = float(sum / divisor);
  }
  return {std::move(out)};
}

void normalise(std::vector<float>& vector, int p) {
  if (p < 0) return;
  double norm = 0;
  for (const float v : vector) {
    const double size = std::abs(static_cast<double>(v));
    if (p == 0)
      norm = std::max(norm, size);
    else
      norm += std::pow(size, p);
  }
  norm = p == 0 ? norm / kLargestMagnitude : std::pow(norm, 1.0 / p);
  if (norm == 0) return;
  for (float& v : vector) v = static_cast<float>(v / norm);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  LUMEN_CHECK(a.size() == b.size());
  double product = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : product / std::sqrt(aa * bb);
}

}  // namespace lumen::model::infer
