#include "model/compress/synthetic.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "model/compress/quantize.h"
#include "model/data/examples/dataset.h"
#include "number/codec/pattern.h"
#include "run/device/require.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kPatternRows = 8;
constexpr int64_t kLearntTokens = 1000;  // of the vocabulary; the others are placeholders
constexpr size_t kLearnFrom = 200'000;   // bytes of text

class Maker {
 public:
  arch::Weight make(const graph::Shape& shape, const FormatRef& format) {
    arch::Weight w;
    w.type = {shape, {Scalar::f32, format}};
    const int64_t rows = w.rows(), columns = w.columns();
    arch::Room room(graph::byte_size(w.type));
    uint8_t* const to = room.data();
    w.bytes = std::move(room).bytes();
    if (format) {
      pattern_of(*format, columns).fill(to, rows);
      return w;
    }
    const std::vector<float> x = pattern_values(kPatternRows * columns, 1);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + r * columns * 4, x.data() + r % kPatternRows * columns, columns * 4);
    return w;
  }

 private:
  const lumen::Pattern& pattern_of(const Format& format, int64_t columns) {
    std::unique_ptr<lumen::Pattern>& pattern = patterns_[{format.name, columns}];
    if (!pattern) pattern = std::make_unique<lumen::Pattern>(format, columns);
    return *pattern;
  }
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<lumen::Pattern>> patterns_;
};

arch::FamilyRef family_of(const arch::Library& library, const std::string& size) {
  if (arch::FamilyRef family = library.family_with_size(size)) return family;
  std::string known;
  for (const std::string& name : library.family_names())
    for (const std::string& s : library.family(name)->sizes()) known += (known.empty() ? "" : ", ") + s;
  throw Error(Exit::usage, fmt::format("no model has the size '{}'", size), "known sizes: " + known);
}

}  // namespace

arch::Model synthetic_model(const arch::LibraryRef& library, const std::string& size, const std::string& type) {
  arch::Model model;
  model.family = family_of(*library, size);
  model.config = model.family->config(size, {});
  model.name = size;
  model.parameters = model.family->parameters(model.config);
  QuantizeOptions options;
  options.target = type;
  options.pure = library->formats().find(type) != nullptr;  // a format's figures should include no other format
  const std::map<std::string, FormatRef> formats = choose_formats(model, options, nullptr);
  int64_t bytes = 0;
  for (const arch::Parameter& p : model.parameters) {
    const auto chosen = formats.find(p.name);
    bytes = run::saturating_sum(
        bytes, graph::byte_size({p.shape, {Scalar::f32, chosen == formats.end() ? nullptr : chosen->second}}));
  }
  run::require_host_memory(fmt::format("'{}' as {}", size, type), {{"weights", bytes}});
  Maker maker;
  uint32_t salt = 0;
  for (const arch::Parameter& p : model.parameters) {
    ++salt;
    const auto chosen = formats.find(p.name);
    const bool plain = chosen == formats.end() || arch::is_plain(*chosen->second, Scalar::f32);
    model.weights[p.name] = p.is_vector() ? initial_weight(*model.family, model.config, p, 1, salt)
                                          : maker.make(p.shape, plain ? nullptr : chosen->second);
  }
  return model;
}

void add_synthetic_tokenizer(arch::Model& model) {
  const int64_t size = model.integer("vocab");
  if (size < kLearntTokens)
    throw usage_error("a vocabulary of {} tokens is too small for a tokenizer to be made up; choose a larger size",
                      size);
  text::BpeTraining training;
  training.vocabulary = kLearntTokens;
  training.specials = {"<|end|>"};
  training.end_of_text = "<|end|>";
  text::Tokenizer::train(data::embedded_text().substr(0, kLearnFrom), training).to_gguf(model.metadata);
  std::vector<std::string> tokens = model.metadata.texts("tokenizer.ggml.tokens");
  std::vector<int32_t> kinds;
  for (const int64_t kind : model.metadata.integers("tokenizer.ggml.token_type")) kinds.push_back(kind);
  LUMEN_CHECK(kinds.size() == tokens.size());
  while (std::ssize(tokens) < size) {
    tokens.push_back(fmt::format("<|unused {}|>", tokens.size()));
    kinds.push_back(ordinal(text::TokenKind::unused));
  }
  model.metadata.set("tokenizer.ggml.tokens", file::GgufArray(std::move(tokens)));
  model.metadata.set("tokenizer.ggml.token_type", file::GgufArray(std::move(kinds)));
  model.tokenizer = text::Tokenizer::from_gguf(model.metadata);
}

}  // namespace lumen::model::compress
