// needs: none. Adapters beside a model against the well-known implementation, against merged weights, of both kinds of
// files, and hostile ones. The fixtures and the script that makes them: adapters_reference.py.
#include "model/arch/adapter/adapter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/gguf.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/session/session_many.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> cases() {
  return names_in(kFixtures / "adapters");
}

struct Case {
  explicit Case(const std::string& name)
      : folder(kFixtures / "adapters" / name),
        file(folder / "expected.safetensors", test_library()->formats()),
        model(read_hf(test_library(), kFixtures / "families" / file.metadata().at("base"))),
        length(file.get("tokens").shape[1]),
        vocab(file.get("logits").shape[2]),
        tokens(numbers<int32_t>(file.get("tokens"))),
        logits(numbers<float>(file.get("logits"))) {}
  std::span<const text::TokenId> text(int64_t i) const {
    return std::span(tokens).subspan(static_cast<size_t>(i * length), static_cast<size_t>(length));
  }
  std::span<const float> wanted(int64_t text, int64_t position) const {
    return std::span(logits).subspan(static_cast<size_t>((text * length + position) * vocab),
                                     static_cast<size_t>(vocab));
  }

  fs::path folder;
  file::SafetensorsFile file;
  Model model;
  int64_t length, vocab;
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

// The largest difference, in units of the range of `b`.
double off(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return std::isfinite(most) ? most / (static_cast<double>(*high) - *low) : INFINITY;
}

std::vector<float> logits_of(const Model& m, std::span<const ScaledAdapter> adapters,
                             std::span<const text::TokenId> text, bool exact = true) {
  const infer::LoadedModel loaded(engine(), m, adapters);
  infer::Session s(loaded, {.context = 16, .chunk = 8, .exact = exact});
  const auto got = s.feed_all(text);
  return {got.begin(), got.end()};
}

constexpr double kBound = 1e-4;

class Adapters : public testing::TestWithParam<std::string> {};

TEST_P(Adapters, AgreeWithTheReference) {
  const Case c(GetParam());
  const std::vector<ScaledAdapter> adapters = {{read_adapter(c.model, c.folder)}};
  for (int64_t r = 0; r < 2; ++r) {
    const auto got = logits_of(c.model, adapters, c.text(r));
    for (int64_t t = 0; t < c.length; ++t)
      EXPECT_LT(
          off(std::span(got).subspan(static_cast<size_t>(t * c.vocab), static_cast<size_t>(c.vocab)), c.wanted(r, t)),
          kBound)
          << "text " << r << ", position " << t;
  }
  // Scale 0 is the model alone; whole weights and magnitudes have no scale.
  const auto& parts = adapters[0].adapter.parts;
  if (!adapters[0].adapter.whole.empty() || parts.begin()->second.magnitude) {
    const std::vector<ScaledAdapter> half = {{adapters[0].adapter, 0.5}};
    EXPECT_THROW(logits_of(c.model, half, c.text(0)), Error);
    return;
  }
  const std::vector<ScaledAdapter> none = {{adapters[0].adapter, 0}};
  EXPECT_EQ(logits_of(c.model, none, c.text(0)), logits_of(c.model, {}, c.text(0)));
}

TEST_P(Adapters, SequencesTogether) {
  const Case c(GetParam());
  const std::vector<ScaledAdapter> adapters = {{read_adapter(c.model, c.folder)}};
  const infer::LoadedModel loaded(engine(), c.model, adapters);
  infer::ManySession many(loaded, {.context = 48, .chunk = 8, .exact = true});
  const int a = many.open(), b = many.open();
  const std::vector<infer::ManySession::Part> parts = {{a, c.text(0)}, {b, c.text(1)}};
  const auto got = many.feed(parts);
  for (int64_t r = 0; r < 2; ++r) EXPECT_LT(off(got[static_cast<size_t>(r)], c.wanted(r, c.length - 1)), kBound);
}

// Sequences of the model and of its adapter in the same steps.
TEST_P(Adapters, SequencesWithAndWithoutOne) {
  const Case c(GetParam());
  const std::vector<AdapterSet> sets = {{}, {{read_adapter(c.model, c.folder)}}};
  if (!can_differ(sets[1])) return;
  const infer::LoadedModel loaded(engine(), c.model, sets);
  infer::ManySession many(loaded, {.context = 64, .chunk = 8, .exact = true}, {.sequences = 4});
  const std::vector<int> sequences = {many.open(1), many.open(0), many.open(1)};
  std::vector<std::vector<float>> got;
  for (int64_t t = 0; t < c.length; ++t) {
    std::vector<infer::ManySession::Part> parts;
    for (size_t i = 0; i < sequences.size(); ++i) parts.push_back({sequences[i], c.text(i == 2 ? 1 : 0).subspan(t, 1)});
    got = many.feed(parts);
  }
  EXPECT_LT(off(got[0], c.wanted(0, c.length - 1)), kBound);
  EXPECT_LT(off(got[2], c.wanted(1, c.length - 1)), kBound);
  const auto alone = logits_of(c.model, {}, c.text(0));
  EXPECT_LT(off(got[1], std::span(alone).last(size_t(c.vocab))), kBound);
}

// A model whose weights are W + scale B A; only for adapters of products.
Model merged(const Model& m, const Adapter& adapter, double scale = 1) {
  Model out = m;
  for (const auto& [name, part] : adapter.parts) {
    Weight& w = out.weights.at(name);
    std::vector<float> values = w.is_f32() ? std::vector<float>(w.f32().begin(), w.f32().end())
                                           : decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
    const int64_t rows = w.rows(), columns = w.columns(), rank = part.rank();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < columns; ++k) {
        double sum = 0;
        for (int64_t i = 0; i < rank; ++i)
          sum += static_cast<double>(part.b.f32()[static_cast<size_t>(r * rank + i)]) *
                 part.a.f32()[static_cast<size_t>(i * columns + k)];
        values[static_cast<size_t>(r * columns + k)] += static_cast<float>(scale * part.scale * sum);
      }
    }
    w = f32_weight(w.type.shape, values);
  }
  return out;
}

TEST(Adapter, MergedWeightsGiveTheSameLogits) {
  for (const char* name : {"every_product", "patterns", "transposed", "normed_queries"}) {
    const Case c(name);
    const Adapter adapter = read_adapter(c.model, c.folder);
    const std::vector<ScaledAdapter> half = {{adapter, 0.5}};
    EXPECT_LT(off(logits_of(c.model, half, c.text(1)), logits_of(merged(c.model, adapter, 0.5), {}, c.text(1))), kBound)
        << name;
  }
}

TEST(Adapter, SeveralAddUp) {
  const Case c("every_product");
  const Adapter adapter = read_adapter(c.model, c.folder);
  Adapter other = adapter;  // fewer targets, another rank
  other.parts.erase("layers.0.wq");
  for (auto& [name, part] : other.parts) {
    const int64_t columns = part.a.columns();
    part.a = f32_weight({graph::Dim(1), graph::Dim(columns)}, part.a.f32().first(static_cast<size_t>(columns)));
    std::vector<float> b;
    for (int64_t r = 0; r < part.b.rows(); ++r)
      b.push_back(part.b.f32()[static_cast<size_t>(r * adapter.parts.at(name).rank())]);
    part.b = f32_weight({graph::Dim(static_cast<int64_t>(b.size())), graph::Dim(1)}, b);
  }
  const std::vector<ScaledAdapter> both = {{adapter, 0.75}, {other, -0.5}};
  const Model sum = merged(merged(c.model, adapter, 0.75), other, -0.5);
  EXPECT_LT(off(logits_of(c.model, both, c.text(0)), logits_of(sum, {}, c.text(0))), kBound);
}

// Weights in a format stay in it; the change is not rounded with them.
TEST(Adapter, BesideRoundedWeights) {
  const Case c("every_product");
  const FormatRef format = test_library()->formats().get("q8_0");
  Model rounded = c.model;
  for (auto& [name, w] : rounded.weights) {
    if (w.type.shape.size() != 2 || w.columns() % format->block != 0) continue;
    std::vector<float> values = w.is_f32() ? std::vector<float>(w.f32().begin(), w.f32().end())
                                           : decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
    w.bytes = encode(*format, values, w.rows(), w.columns());
    w.type.element = {Scalar::f32, format};
  }
  const Adapter adapter = read_adapter(rounded, c.folder);
  const std::vector<ScaledAdapter> one = {{adapter}};
  EXPECT_EQ(rounded.weights.at("layers.0.wq").type.element.format, format);
  EXPECT_LT(off(logits_of(rounded, one, c.text(0)), logits_of(merged(rounded, adapter), {}, c.text(0))), kBound);
}

TEST(Adapter, PerplexityIsThatOfTheMergedModel) {
  const Case c("every_product");
  const Adapter adapter = read_adapter(c.model, c.folder);
  const std::vector<ScaledAdapter> one = {{adapter}};
  const Model whole = merged(c.model, adapter);
  const infer::LoadedModel with(engine(), c.model, one), without(engine(), c.model), together(engine(), whole);
  infer::PerplexityOptions options;
  options.length = 13;
  options.exact = true;
  const std::vector<text::TokenId> text(c.tokens.begin(), c.tokens.end());
  const double a = perplexity(with, text, options, {}).nats, b = perplexity(together, text, options, {}).nats;
  EXPECT_NEAR(a, b, 1e-4 * b);
  EXPECT_GT(std::abs(perplexity(without, text, options, {}).nats - b), 0.01 * b);
}

// ---- GGUF

struct Entry {
  std::string name;
  Weight w;
};

void write_adapter(const fs::path& path, const std::vector<Entry>& entries,
                   const std::function<void(file::GgufMetadata&)>& change = {}) {
  file::GgufMetadata m;
  m.set("general.type", std::string("adapter"));
  m.set("adapter.type", std::string("lora"));
  m.set("general.architecture", std::string("llama"));
  m.set("adapter.lora.alpha", 8.0F);
  if (change) change(m);
  std::vector<file::TensorSpec> specs;
  for (const Entry& e : entries) {
    file::TensorSpec s;
    s.name = e.name;
    for (const graph::Dim& d : e.w.type.shape) s.shape.push_back(d.number());
    s.element = e.w.type.element;
    specs.push_back(s);
  }
  file::GgufWriter writer(path, m, specs);
  for (const Entry& e : entries) writer.write({e.w.bytes.data(), e.w.bytes.size()});
  writer.commit();
}

std::vector<Entry> entries_of(const Model& m, const Adapter& adapter) {
  std::vector<Entry> entries;
  for (const auto& [name, part] : adapter.parts) {
    entries.push_back({m.find(name)->gguf + ".lora_a", part.a});
    entries.push_back({m.find(name)->gguf + ".lora_b", part.b});
  }
  return entries;
}

TEST(Adapter, GgufFilesSayTheSame) {
  const Case c("every_product");
  const TestFolder folder;
  const Adapter adapter = read_adapter(c.model, c.folder);
  write_adapter(folder / "a.gguf", entries_of(c.model, adapter));
  const Adapter again = read_adapter(c.model, folder / "a.gguf");
  ASSERT_EQ(again.parts.size(), adapter.parts.size());
  const std::vector<ScaledAdapter> a = {{adapter}}, b = {{again}};
  EXPECT_EQ(logits_of(c.model, a, c.text(0)), logits_of(c.model, b, c.text(0)));
}

TEST(Adapter, GgufFilesHoldEmbeddingsTurned) {
  const Case c("embedding");
  const TestFolder folder;
  const Adapter adapter = read_adapter(c.model, c.folder);
  write_adapter(folder / "a.gguf", entries_of(c.model, adapter), [&](file::GgufMetadata& m) {
    m.set("general.architecture", c.model.family->gguf_architecture());
    m.set("adapter.lora.alpha", 2.0F);
  });
  const std::vector<ScaledAdapter> a = {{adapter}}, b = {{read_adapter(c.model, folder / "a.gguf")}};
  EXPECT_EQ(logits_of(c.model, a, c.text(0)), logits_of(c.model, b, c.text(0)));
}

std::string message_of(const Model& m, const fs::path& path) {
  try {
    (void)read_adapter(m, path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

Weight zeros(int64_t rows, int64_t columns) {
  return f32_weight({graph::Dim(rows), graph::Dim(columns)},
                    std::vector<float>(static_cast<size_t>(rows * columns), 0.0F));
}

TEST(Adapter, RefusesGgufFilesThatDoNotFit) {
  const Case c("every_product");
  const int64_t hidden = c.model.integer("hidden");
  const std::string q = "blk.0.attn_q.weight";
  const TestFolder folder;
  const auto refused = [&](const std::vector<Entry>& entries, const std::string& words,
                           const std::function<void(file::GgufMetadata&)>& change = {}) {
    write_adapter(folder / "bad.gguf", entries, change);
    const std::string message = message_of(c.model, folder / "bad.gguf");
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  const Entry a = {q + ".lora_a", zeros(2, hidden)}, b = {q + ".lora_b", zeros(hidden, 2)};
  refused({a}, "not its B");
  refused({b}, "not its A");
  refused({}, "no tensors");
  refused({a, {q + ".lora_b", zeros(hidden, 3)}}, "has shape [2, 32]");
  refused({{q + ".lora_a", zeros(2, hidden + 1)}, b}, "the model needs [2, 32]");
  refused({a, {q + ".lora_b", zeros(hidden + 2, 2)}}, "the model needs [32, 2]");
  refused({{"blk.7.attn_q.weight.lora_a", zeros(2, hidden)}, {"blk.7.attn_q.weight.lora_b", zeros(hidden, 2)}},
          "no weight 'blk.7.attn_q.weight'");
  refused({a, b, {"blk.0.attn_norm.weight", zeros(1, hidden)}}, "not part of a low-rank update");
  refused({{"output_norm.weight.lora_a", zeros(2, hidden)}, {"output_norm.weight.lora_b", zeros(hidden, 2)}},
          "not one matrix");
  refused({a, b}, "made for models of the architecture",
          [](file::GgufMetadata& m) { m.set("general.architecture", std::string("unheard-of")); });
  refused({a, b}, "not an adapter", [](file::GgufMetadata& m) { m.set("general.type", std::string("model")); });
  refused({a, b}, "only 'lora' is",
          [](file::GgufMetadata& m) { m.set("adapter.type", std::string("control_vector")); });
  refused({a, b}, "not finite", [](file::GgufMetadata& m) { m.set("adapter.lora.alpha", INFINITY); });
  std::vector<float> values(static_cast<size_t>(2 * hidden), 0.0F);
  values[7] = NAN;
  refused({{q + ".lora_a", f32_weight({graph::Dim(2), graph::Dim(hidden)}, values)}, b}, "not finite");
}

// ---- Folders

class Folders : public testing::Test {
 protected:
  Folders() : c("every_product") {
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
      fs::copy_file(c.folder / name, folder / name);
    config = nlohmann::json::parse(read_file(folder / "adapter_config.json"));
  }
  void refused(const nlohmann::json& changed, const std::string& words) {
    write_file_atomic(folder / "adapter_config.json", changed.dump());
    const std::string message = message_of(c.model, folder.path());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
  void refused(const std::string& key, const nlohmann::json& value, const std::string& words) {
    nlohmann::json changed = config;
    changed[key] = value;
    refused(changed, words);
  }
  Case c;
  TestFolder folder;
  nlohmann::json config;
};

TEST_F(Folders, RefuseSettingsThatCannotBeApplied) {
  EXPECT_EQ(message_of(c.model, folder.path()), "no error");
  EXPECT_EQ(message_of(c.model, folder / "adapter_model.safetensors"), "no error");
  refused("peft_type", "IA3", "peft_type");
  refused("use_dora", true, "has no magnitude");
  refused("bias", "some", "bias");
  refused("r", 1e18, "has rank 4, but adapter_config.json has 1e+18");
  refused("use_dora", "yes", "\"use_dora\" must be true or false");
  refused("target_modules", {"q_proj", 3}, "must be a list of names");
  refused("layers_to_transform", {-1}, "must be whole numbers from 0");
  refused("key_of_tomorrow", 1, "the effect of the key is unknown");
  // What the file has beyond what the config names.
  refused("target_modules", {"q_proj"}, "which adapter_config.json does not name");
  refused("target_modules", ".*\\.(?:k|v)_proj", "which adapter_config.json does not name");
  refused("exclude_modules", {"layers.1.mlp.up_proj"}, "changes 'model.layers.1.mlp.up_proj', which");
  refused("layers_to_transform", {0, 7}, "changes 'lm_head', which");
  refused("modules_to_save", {"up_proj"}, "mlp.up_proj', which adapter_config.json does not name");
  refused("modules_to_save", {"embed_tokens"}, "names 'embed_tokens', but the file has no weight of it");
  refused("lora_bias", true, "has no bias");
  refused("trainable_token_indices", {1, 2}, "names trained tokens, but their rows are missing");
  refused("trainable_token_indices", {1, 1}, "names a token twice");
  refused("target_modules", "all-linear", "no error");
  refused("target_modules", nullptr, "no error");
  refused("target_modules", ".*(?:_proj|lm_head)", "no error");
  refused("init_lora_weights", "pissa_niter_4", "pissa_niter_4");
  refused("r", 5, "has rank 4");
  refused("r", 0, "above 0");
  refused("r", "four", "above 0");
  refused("lora_alpha", -1, "above 0");
  refused("rank_pattern", nlohmann::json::array({1}), "must be an object");
  refused("rank_pattern", {{"q_proj(", 3}}, "rank_pattern");
  nlohmann::json none = config;
  none.erase("lora_alpha");
  refused(none, "\"lora_alpha\" is missing");
  refused(nlohmann::json::array(), "not a JSON object");
}

TEST_F(Folders, RefuseTensorsThatDoNotFit) {
  const int64_t hidden = c.model.integer("hidden");
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const auto refuse = [&](const std::vector<Entry>& entries, const std::string& words) {
    std::vector<file::TensorSpec> specs;
    for (const Entry& e : entries) specs.push_back({e.name, {e.w.rows(), e.w.columns()}, e.w.type.element});
    file::SafetensorsWriter writer(folder / "adapter_model.safetensors", {}, specs);
    for (const Entry& e : entries) writer.write({e.w.bytes.data(), e.w.bytes.size()});
    writer.commit();
    const std::string message = message_of(c.model, folder.path());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  const Entry a = {q + "A.weight", zeros(4, hidden)}, b = {q + "B.weight", zeros(hidden, 4)};
  refuse({a}, "not its B");
  refuse({a, b, {q + "A.default.weight", zeros(4, hidden)}}, "conflicting tensors");
  refuse({a, {q + "B.weight", zeros(hidden + 1, 4)}}, "the model needs [32, 4]");
  refuse({a, b, {"base_model.model.model.embed_tokens.weight", zeros(3, 3)}}, "has shape [3, 3], but the model needs");
  refuse({a, b, {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", zeros(3, 3)}},
         "is a magnitude, but adapter_config.json does not set");
  refuse({a, b, {"base_model.model.model.layers.0.self_attn.q_proj.bias", zeros(3, 3)}},
         "has shape [3, 3], but the model needs [32]");
  refuse({a, b, {"base_model.model.model.norm.bias", zeros(1, hidden)}}, "no weight 'model.norm.bias'");
  refuse({a, b, {q + "C.weights", zeros(3, 3)}}, "not part of a low-rank update, nor a weight or a bias");
  refuse({a, b, {q + "B.bias", zeros(1, hidden)}}, "does not set \"lora_bias\"");
  refuse({a, b, {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", zeros(2, hidden)}},
         "does not name the tokens");
  refuse({{q + "A.weight", zeros(0, hidden)}, {q + "B.weight", zeros(hidden, 0)}}, "has shape [0, 32]");
  refuse({{"base_model.model.model.layers.0.self_attn.q_proj.base_layer.lora_A.weight", zeros(4, hidden)},
          {"base_model.model.model.layers.0.self_attn.q_proj.base_layer.lora_B.weight", zeros(hidden, 4)}},
         "1 parameters of 'model.layers.0.self_attn.q_proj' are changed, but \"target_parameters\"");
  std::vector<float> broken(static_cast<size_t>(4 * hidden), 0.0F);
  broken[5] = INFINITY;
  refuse({{q + "A.weight", f32_weight({graph::Dim(4), graph::Dim(hidden)}, broken)}, b}, "not finite");
  refuse({a, b, {"base_model.model.model.nothing.weight", zeros(3, 3)}}, "no weight 'model.nothing'");
  const Entry norm = {"base_model.model.model.embed_tokens.weight", zeros(c.model.integer("vocab"), hidden)};
  refuse({a,
          b,
          norm,
          {"base_model.model.model.embed_tokens.base_layer.weight",
           [&] { return f32_weight(norm.w.type.shape, std::vector<float>(norm.w.f32().size(), 1.0f)); }()}},
         "two different weights for parameter embed");
  refuse({{"base_model.model.model.vision.lora_A.weight", zeros(4, hidden)},
          {"base_model.model.model.vision.lora_B.weight", zeros(hidden, 4)}},
         "changes 'model.vision', which adapter_config.json does not name");
  refuse({{q + "A.weight", zeros(4, 3)}, b}, "the model needs [4, 32]");
  refuse({{"base_model.model.model.layers.0.self_attn.q_proj.lora_embedding_A", zeros(4, hidden)},
          {"base_model.model.model.layers.0.self_attn.q_proj.lora_embedding_B", zeros(hidden, 4)}},
         "uses it differently");
  fs::remove(folder / "adapter_model.safetensors");
  EXPECT_NE(message_of(c.model, folder.path()).find("no adapter_model.safetensors"), std::string::npos);
}

TEST(Adapter, RefusesMagnitudesThatDoNotFit) {
  const Case c("magnitudes");
  const TestFolder folder;
  fs::copy_file(c.folder / "adapter_config.json", folder / "adapter_config.json");
  const int64_t hidden = c.model.integer("hidden");
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const auto refuse = [&](const std::vector<Entry>& entries, const std::string& words) {
    std::vector<file::TensorSpec> specs;
    for (const Entry& e : entries) specs.push_back({e.name, {e.w.rows(), e.w.columns()}, e.w.type.element});
    file::SafetensorsWriter writer(folder / "adapter_model.safetensors", {}, specs);
    for (const Entry& e : entries) writer.write({e.w.bytes.data(), e.w.bytes.size()});
    writer.commit();
    const std::string message = message_of(c.model, folder.path());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  const Entry a = {q + "A.weight", zeros(3, hidden)}, b = {q + "B.weight", zeros(hidden, 3)},
              m = {q + "magnitude_vector", zeros(1, hidden)};
  refuse({a, b, m}, "no error");
  refuse({a, b}, "has no magnitude");
  refuse({a, b, {q + "magnitude_vector", zeros(1, hidden + 1)}}, "the model needs [32]");
  refuse({a, b, m, {q + "magnitude_vector.default", zeros(1, hidden)}}, "has one already");
  refuse({a, b, m, {"base_model.model.model.layers.1.self_attn.q_proj.lora_magnitude_vector", zeros(1, hidden)}},
         "is a magnitude of a module that is not adapted");
}

// What an adapter brings that the model has already is no change; what differs stands in its place, once.
TEST(Adapter, WholeWeights) {
  const auto whole = [](const char* name) {
    const Case c(name);
    std::vector<std::string> names;
    for (const auto& [parameter, weight] : read_adapter(c.model, c.folder).whole) names.push_back(parameter);
    return names;
  };
  using Names = std::vector<std::string>;
  // One weight stays one where the file says so.
  EXPECT_EQ(whole("tied_copy"), Names{"embed"});
  EXPECT_EQ(whole("tied_copy_output"), Names{"embed"});
  EXPECT_EQ(whole("tokens"), Names{"embed"});
  EXPECT_EQ(whole("grown_tied"), Names{"embed"});
  EXPECT_EQ(whole("grown_tokens"), Names{"embed"});
  EXPECT_EQ(whole("tokens_parted"), (Names{"embed", "output"}));
  EXPECT_EQ(whole("grown_copy"), (Names{"embed", "output"}));
  EXPECT_EQ(whole("own_biases"), (Names{"layers.0.bdown", "layers.0.bq", "layers.1.bdown", "layers.1.bq"}));
  EXPECT_EQ(whole("embedding"), Names());
  EXPECT_EQ(whole("other_embedding"), Names{"embed"});
  EXPECT_EQ(whole("tied_output"), (Names{"embed", "output"}));
  EXPECT_EQ(whole("copies"), (Names{"embed", "layers.0.attn_norm", "layers.0.ffn_norm", "layers.1.attn_norm",
                                    "layers.1.ffn_norm", "norm", "output"}));
  EXPECT_EQ(whole("copied_embedding"), (Names{"embed", "output"}));
  EXPECT_EQ(whole("copied_output"), Names{"output"});
  // Two adapters with the same weight are one; with different ones they contradict.
  const Case c("copied_output");
  Adapter one = read_adapter(c.model, c.folder), other = one;
  const Model changed = with_whole_weights(c.model, std::vector<const Adapter*>{&one, &other});
  EXPECT_EQ(changed.config.at("tied"), 0);
  EXPECT_EQ(changed.weights.at("embed").bytes, c.model.weights.at("embed").bytes);
  Weight& w = other.whole.at("output");
  w = f32_weight(w.type.shape, std::vector<float>(w.f32().size(), 1.0f));
  EXPECT_THROW(with_whole_weights(c.model, std::vector<const Adapter*>{&one, &other}), Error);
}

// A file that leaves the output of a tied copy away says the same: the output follows.
TEST(Adapter, TiedCopiesWithoutTheOutput) {
  const Case c("tied_copy");
  const TestFolder folder;
  const file::SafetensorsFile file(c.folder / "adapter_model.safetensors", test_library()->formats());
  std::vector<file::TensorSpec> specs;
  std::vector<std::vector<uint8_t>> blobs;
  for (const file::StoredTensor& t : file.tensors()) {
    if (t.name.find("lm_head") != std::string::npos) continue;
    specs.push_back(t);
    blobs.push_back(t.blob());
  }
  ASSERT_EQ(specs.size() + 1, file.tensors().size());
  file::SafetensorsWriter writer(folder / "adapter_model.safetensors", {}, specs);
  for (const std::vector<uint8_t>& blob : blobs) writer.write(blob);
  writer.commit();
  fs::copy_file(c.folder / "adapter_config.json", folder / "adapter_config.json");
  const std::vector<ScaledAdapter> adapters = {{read_adapter(c.model, folder.path())}};
  ASSERT_EQ(adapters[0].adapter.whole.size(), 1U);
  const auto got = logits_of(c.model, adapters, c.text(0));
  for (int64_t t = 0; t < c.length; ++t)
    EXPECT_LT(
        off(std::span(got).subspan(static_cast<size_t>(t * c.vocab), static_cast<size_t>(c.vocab)), c.wanted(0, t)),
        kBound)
        << t;
}

// ---- Parameters of experts

// A folder of one layer's tensors and a config beside them.
void write_folder(const fs::path& folder, const std::vector<Entry>& entries, const nlohmann::json& config) {
  fs::create_directories(folder);
  write_file_atomic(folder / "adapter_config.json", config.dump());
  std::vector<file::TensorSpec> specs;
  for (const Entry& e : entries) specs.push_back({e.name, {e.w.rows(), e.w.columns()}, e.w.type.element});
  file::SafetensorsWriter writer(folder / "adapter_model.safetensors", {}, specs);
  for (const Entry& e : entries) writer.write({e.w.bytes.data(), e.w.bytes.size()});
  writer.commit();
}

Weight counted(int64_t rows, int64_t columns, float first) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return f32_weight({graph::Dim(rows), graph::Dim(columns)}, values);
}

// Stacks whose matrices have as many rows as columns: only the version says which is A's side.
TEST(AdapterParameters, SidesOfSquareMatrices) {
  constexpr int64_t kExperts = 3, kSide = 12, kRank = 2, kAll = kExperts * kRank;
  const FamilyRef family = test_library()->family("qwen3_moe");
  const Model m = initialise(family,
                             family->config("", {{"vocab", 11},
                                                 {"hidden", kSide},
                                                 {"layers", 1},
                                                 {"heads", 2},
                                                 {"kv_heads", 1},
                                                 {"head_dim", 4},
                                                 {"experts", kExperts},
                                                 {"picked", 2},
                                                 {"expert_ffn", kSide},
                                                 {"context", 16}}),
                             1);
  const TestFolder folder;
  const Weight a = counted(kAll, kSide, 100), b = counted(kSide, kAll, 1000);
  const std::string module = "base_model.model.model.layers.0.mlp.experts.lora_";
  nlohmann::json settings = {
      {"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 6}, {"target_parameters", {"mlp.experts.down_proj"}}};
  const auto read = [&](const char* version) {
    if (version) settings["peft_version"] = version;
    write_folder(folder / "a", {{module + "A.weight", a}, {module + "B.weight", b}}, settings);
    return read_adapter(m, folder / "a").parts.at("layers.0.downs");
  };
  const AdapterPart turned = read(nullptr), also_turned = read("0.18.1"), straight = read("0.21.2");
  EXPECT_EQ(turned.a.bytes, also_turned.a.bytes);
  EXPECT_EQ(straight.scale, 3);
  const auto at = [](const Weight& w, int64_t e, int64_t r, int64_t c) {
    const int64_t rows = w.type.shape[1].number(), columns = w.type.shape[2].number();
    return w.f32()[static_cast<size_t>((e * rows + r) * columns + c)];
  };
  const auto in = [](const Weight& w, int64_t r, int64_t c) {
    return w.f32()[static_cast<size_t>(r * w.columns() + c)];
  };
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t r = 0; r < kRank; ++r) {
      for (int64_t k = 0; k < kSide; ++k) {
        EXPECT_EQ(at(straight.a, e, r, k), in(a, e * kRank + r, k));
        EXPECT_EQ(at(straight.b, e, k, r), in(b, k, r * kExperts + e));
        EXPECT_EQ(at(turned.a, e, r, k), in(b, k, r * kExperts + e));
        EXPECT_EQ(at(turned.b, e, k, r), in(a, e * kRank + r, k));
      }
    }
  }
}

// What versions before 0.19 wrote of the same change is read as the same, by its shapes.
TEST(AdapterParameters, FilesOfOlderVersions) {
  const Case c("experts");
  const Adapter now = read_adapter(c.model, c.folder);
  const file::SafetensorsFile file(c.folder / "adapter_model.safetensors", test_library()->formats());
  const int64_t experts = c.model.integer("experts");
  std::vector<Entry> entries;
  std::map<std::string, Weight> given;
  for (const file::StoredTensor& t : file.tensors()) {
    std::vector<float> values;
    for (const uint16_t high : numbers<uint16_t>(t)) values.push_back(std::bit_cast<float>(uint32_t{high} << 16));
    given[t.name] = f32_weight({graph::Dim(t.rows()), graph::Dim(t.columns())}, values);
  }
  for (const auto& [name, w] : given) {
    if (name.find(".experts.") == std::string::npos) {
      entries.push_back({name, w});
      continue;
    }
    // Each takes the other's place, with its order of ranks and matrices.
    const bool is_a = name.find("lora_A") != std::string::npos;
    std::string other = name;
    other.replace(other.find(is_a ? "lora_A" : "lora_B"), 6, is_a ? "lora_B" : "lora_A");
    const Weight& from = given.at(other);
    const int64_t rows = from.columns(), columns = from.rows(), rank = (is_a ? rows : columns) / experts;
    std::vector<float> values;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < columns; ++k) {
        const int64_t of_a = is_a ? r : k, of_b = of_a % rank * experts + of_a / rank;
        const int64_t by_rank = is_a ? of_b : k % experts * rank + k / experts;
        values.push_back(is_a ? from.f32()[static_cast<size_t>(k * from.columns() + by_rank)]
                              : from.f32()[static_cast<size_t>(by_rank * from.columns() + r)]);
      }
    entries.push_back({name, f32_weight({graph::Dim(rows), graph::Dim(columns)}, values)});
  }
  nlohmann::json config = nlohmann::json::parse(read_file(c.folder / "adapter_config.json"));
  config["peft_version"] = "0.18.0";
  const TestFolder folder;
  write_folder(folder / "a", entries, config);
  const Adapter then = read_adapter(c.model, folder / "a");
  ASSERT_EQ(then.parts.size(), now.parts.size());
  for (const auto& [name, part] : now.parts) {
    EXPECT_EQ(then.parts.at(name).a.bytes, part.a.bytes) << name;
    EXPECT_EQ(then.parts.at(name).b.bytes, part.b.bytes) << name;
  }
}

TEST(AdapterParameters, RefuseWhatDoesNotFit) {
  const Case c("experts");
  const TestFolder folder;
  fs::copy(c.folder, folder / "a");
  const nlohmann::json config = nlohmann::json::parse(read_file(c.folder / "adapter_config.json"));
  const auto refused = [&](const std::string& key, const nlohmann::json& value, const std::string& words) {
    nlohmann::json changed = config;
    changed[key] = value;
    write_file_atomic(folder / "a" / "adapter_config.json", changed.dump());
    const std::string message = message_of(c.model, folder / "a");
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused("target_parameters", {"mlp.experts.down_proj"},
          "2 parameters of 'model.layers.0.mlp.experts' are changed, but");
  refused("target_parameters", {"mlp.experts.nothing"}, "which adapter_config.json does not name");
  refused("r", 3, "has rank 2, but adapter_config.json has 3");
  refused("target_parameters", "mlp.experts.down_proj", "must be a list of names");
  // Rows that are no multiple of the experts.
  const int64_t hidden = c.model.integer("hidden"), wide = 2 * c.model.integer("expert_ffn");
  const std::string module = "base_model.model.model.layers.0.mlp.experts.lora_";
  const nlohmann::json one = {
      {"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 2}, {"target_parameters", {"experts.gate_up_proj"}}};
  write_folder(folder / "b", {{module + "A.weight", zeros(13, hidden)}, {module + "B.weight", zeros(wide, 13)}}, one);
  EXPECT_NE(message_of(c.model, folder / "b").find("not a multiple of 7 matrices"), std::string::npos);
  write_folder(folder / "c", {{module + "A.weight", zeros(14, hidden + 1)}, {module + "B.weight", zeros(wide, 14)}},
               one);
  EXPECT_NE(message_of(c.model, folder / "c").find("the model needs [14, 32]"), std::string::npos);
}

// ---- Rows of tokens, vocabularies

TEST(AdapterTokens, AsAKindOfTheirOwn) {
  const Case c("tokens");
  const int64_t hidden = c.model.integer("hidden");
  const TestFolder folder;
  const std::string name = "base_model.model.model.embed_tokens.trainable_tokens_delta";
  const Weight rows = counted(2, hidden, 5);
  nlohmann::json config = {
      {"peft_type", "TRAINABLE_TOKENS"}, {"token_indices", {3, 0}}, {"target_modules", {"embed_tokens"}}};
  write_folder(folder / "a", {{name, rows}}, config);
  const Adapter adapter = read_adapter(c.model, folder / "a");
  ASSERT_EQ(adapter.whole.size(), 1U);
  const Weight &now = adapter.whole.at("embed"), &before = c.model.weights.at("embed");
  const std::vector<float> old = decode(*before.type.element.format, before.bytes, before.rows(), before.columns());
  for (int64_t id = 0; id < now.rows(); ++id)
    for (int64_t k = 0; k < hidden; ++k) {
      const auto at = static_cast<size_t>(id * hidden + k);
      EXPECT_EQ(now.f32()[at], id == 3   ? rows.f32()[static_cast<size_t>(k)]
                               : id == 0 ? rows.f32()[static_cast<size_t>(hidden + k)]
                                         : old[at]);
    }
  const auto refused = [&](const nlohmann::json& ids, const std::string& words) {
    config["token_indices"] = ids;
    write_folder(folder / "a", {{name, rows}}, config);
    const std::string message = message_of(c.model, folder / "a");
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused({3, 61}, "token 61 was trained, but 'model.embed_tokens' has 61");
  refused({3}, "the model needs [1, 32]");
  refused({3, -1}, "must be whole numbers from 0");
  refused({3, 3}, "names a token twice");
  refused(nullptr, "does not name the tokens");
}

TEST(AdapterVocabulary, NeedsAllThatGrows) {
  const Case c("grown");
  const TestFolder folder;
  const nlohmann::json config = nlohmann::json::parse(read_file(c.folder / "adapter_config.json"));
  const file::SafetensorsFile file(c.folder / "adapter_model.safetensors", test_library()->formats());
  std::vector<Entry> entries;
  for (const file::StoredTensor& t : file.tensors()) {
    if (t.name.find("lm_head") != std::string::npos) continue;
    Entry e{t.name, zeros(t.rows(), t.columns())};
    entries.push_back(std::move(e));
  }
  write_folder(folder / "a", entries, config);
  const std::string message = message_of(c.model, folder / "a");
  EXPECT_NE(message.find("has 70 tokens, but the file has no parameter output of that size"), std::string::npos)
      << message;
  const Adapter whole = read_adapter(c.model, c.folder);
  EXPECT_EQ(whole.config.at("vocab"), 70);
  EXPECT_EQ(with_whole_weights(c.model, std::vector<const Adapter*>{&whole}).integer("vocab"), 70);
  EXPECT_EQ(c.model.integer("vocab"), 61);
}

INSTANTIATE_TEST_SUITE_P(All, Adapters, testing::ValuesIn(cases()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model::arch
