// What the fixtures of families hold: tiny models and what the well-known implementation computes with them
// (families_reference.py), and our logits of the same texts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "model/file/safetensors.h"
#include "model/infer/session/session.h"
#include "tests/model/tiny.h"

namespace lumen::model {

inline const std::filesystem::path kFixtures = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures";
inline const std::filesystem::path kFamilies = kFixtures / "families";

inline constexpr double kLogitBound = 1e-4;  // of the range of all logits

// Names in a folder, without what stands behind the last dot, in order.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// A tensor's bytes as numbers of its type.
template <typename Number>
std::vector<Number> numbers(const file::StoredTensor& t) {
  const std::vector<uint8_t> bytes = t.blob();
  std::vector<Number> out(bytes.size() / sizeof(Number));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Number));
  return out;
}

// Some texts and the logits wanted of them.
struct Expected {
  explicit Expected(const std::string& name)
      : file(kFamilies / name / "expected.safetensors", test_library()->formats()),
        batch(file.get("tokens").shape[0]),
        length(file.get("tokens").shape[1]),
        vocab(file.get("logits").shape[2]),
        tokens(numbers<int32_t>(file.get("tokens"))),
        logits(numbers<float>(file.get("logits"))) {
    const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
    range = static_cast<double>(*high) - *low;
  }
  // The largest difference of one position's logits, in units of their whole range.
  double off(std::span<const float> got, int64_t text, int64_t position) const {
    double most = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      const float want = logits[static_cast<size_t>((text * length + position) * vocab + v)];
      most = std::max(most, std::abs(static_cast<double>(got[static_cast<size_t>(v)]) - want));
    }
    return std::isfinite(most) ? most / range : INFINITY;
  }
  // The same for all positions of one text, whose logits are `text`'s of `got` [texts, length, vocab].
  double off_text(std::span<const float> got, int64_t in_got, int64_t text) const {
    double most = 0;
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>((in_got * length + t) * vocab);
      most = std::max(most, off(got.subspan(at, static_cast<size_t>(vocab)), text, t));
    }
    return most;
  }
  std::span<const int32_t> text(int64_t i) const {
    return std::span(tokens).subspan(static_cast<size_t>(i * length), static_cast<size_t>(length));
  }

  file::SafetensorsFile file;
  int64_t batch, length, vocab;
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  double range = 0;
};

inline run::DeviceTensorRef tensor_of(const graph::Shape& shape, const std::vector<int32_t>& values) {
  auto t = std::make_shared<run::DeviceTensor>(engine().device(), graph::Type{shape, {Scalar::i32, nullptr}});
  t->upload(values.data(), t->bytes());
  return t;
}

// Logits [rows, length, vocab] of the beginnings of `rows` texts, the fixture's in turn; or hidden states, with
// `hidden`.
inline std::vector<float> forward(const arch::Model& m, const infer::LoadedModel& loaded, const Expected& e,
                                  int64_t rows, int64_t length, const char* function = "forward") {
  run::CompileOptions options;
  options.assignments = stored_formats(m);
  options.symbols = {{"B", rows}, {"T", length}};
  options.exact = true;
  const auto program = engine().compile(m.family->function(function, m.config), options);
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < rows; ++r) {
    const auto text = e.text(r % e.batch).first(static_cast<size_t>(length));
    ids.insert(ids.end(), text.begin(), text.end());
  }
  const auto tokens = tensor_of({rows, length}, ids);
  const auto lengths = tensor_of({rows}, std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(length)));
  for (const std::string& name : program->input_names())
    program->bind(name, name == "tokens" ? tokens : name == "lengths" ? lengths : loaded.weights().at(name));
  program->run();
  std::vector<float> logits(static_cast<size_t>(rows * length * e.vocab));
  program->result(arch::kResult)->download(logits.data(), static_cast<int64_t>(logits.size() * sizeof(float)));
  return logits;
}

}  // namespace lumen::model
