// needs: none. Several texts in one window: every family's losses and gradients are those of the texts one by one.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/pipeline/pipeline.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/recurrent/recurrent.h"
#include "model/recipe/optimizer/optimizer.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::data {
namespace {

class Packing : public testing::TestWithParam<std::string> {};

// Losses, and the gradients of their sum by some weights.
struct Numbers {
  std::vector<float> losses;
  std::map<std::string, std::vector<double>> gradients;
};

class Case {
 public:
  explicit Case(const std::string& name)
      : expected(name), model_(read_hf(test_library(), kFamilies / name)), loaded_(engine(), model_) {
    for (const arch::Parameter& p : model_.parameters)
      if (!p.frozen && wanted_.size() < 6 && (p.name.starts_with("layers.0.") || !p.is_vector())) wanted_.push_back(&p);
  }

  Expected expected;

  struct Rows {
    std::vector<int32_t> tokens, targets, starts;  // starts: where texts share rows
    std::vector<float> weights;
  };
  Numbers run(int64_t rows, const Rows& in) {
    const auto length = static_cast<int64_t>(in.tokens.size()) / rows;
    graph::Graph g = model_.family->function("token_loss", model_.config);
    g = graph::changed(std::move(g), {.texts_apart = !in.starts.empty()});
    graph::inline_calls(g);
    const graph::ValueId losses = g.results[0];
    graph::Builder b(g);
    const graph::ValueId weights = b.input(arch::kResult, graph::Role::data, g[losses].type);
    const graph::ValueId loss = b.reshape(b.reduce(b.mul(losses, weights), graph::Reduction::sum, {0, 1}), {});
    std::vector<graph::ValueId> by;
    for (const arch::Parameter* p : wanted_) by.push_back(g.find_input(p->name));
    for (const graph::ValueId d : graph::differentiate(g, loss, by)) g.results.push_back(d);
    for (const arch::Parameter* p : wanted_) g.result_names.push_back("d." + p->name);
    run::CompileOptions options;
    options.assignments = stored_formats(model_);
    options.symbols = {{"B", rows}, {"T", length}};
    options.exact = true;
    const auto program = engine().compile(g, options);
    for (const std::string& name : program->input_names()) {
      program->bind(name, name == "tokens"         ? tensor_of({rows, length}, in.tokens)
                          : name == "targets"      ? tensor_of({rows, length}, in.targets)
                          : name == graph::kStarts ? tensor_of({rows, length}, in.starts)
                          : name == arch::kResult  ? floats({rows, length}, in.weights)
                                                   : loaded_.weights().at(name));
    }
    program->run();
    Numbers out;
    out.losses = download(*program, g.result_names[0], rows * length);
    for (const arch::Parameter* p : wanted_) {
      const std::vector<float> got = download(*program, "d." + p->name, p->count());
      out.gradients[p->name] = {got.begin(), got.end()};
    }
    return out;
  }

 private:
  static run::DeviceTensorRef floats(const graph::Shape& shape, const std::vector<float>& values) {
    auto t = std::make_shared<run::DeviceTensor>(engine().device(), graph::Type{shape, {Scalar::f32, nullptr}});
    t->upload(values.data(), t->bytes());
    return t;
  }
  static std::vector<float> download(run::Program& program, const std::string& name, int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    program.result(name)->download(out.data(), count * static_cast<int64_t>(sizeof(float)));
    return out;
  }

  arch::Model model_;
  infer::LoadedModel loaded_;
  std::vector<const arch::Parameter*> wanted_;
};

// Lengths 7, 1, 16 and 8 in one row of 32, and each in a row of its own.
TEST_P(Packing, TextsInOneWindowAreTextsAlone) {
  Case c(GetParam());
  const std::vector<int64_t> lengths = {7, 1, 16, 8};
  constexpr int64_t kLongest = 16, kAll = 32;
  Case::Rows single, together;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto text = c.expected.text(static_cast<int64_t>(i) % 2);
    const auto begin = static_cast<int32_t>(together.tokens.size());
    for (int64_t t = 0; t < kLongest; ++t) {
      const auto at = static_cast<size_t>(t);
      const float weight = 0.5F + 0.1F * static_cast<float>((t + begin) % 7);
      single.tokens.push_back(text[at]);
      single.targets.push_back(text[at + 1]);
      single.weights.push_back(t < lengths[i] ? weight : 0);
      if (t >= lengths[i]) continue;
      together.tokens.push_back(text[at]);
      together.targets.push_back(text[at + 1]);
      together.weights.push_back(weight);
      together.starts.push_back(begin);
    }
  }
  // A second row of the same texts, so that rows have their own starts.
  ASSERT_EQ(together.tokens.size(), static_cast<size_t>(kAll));
  const auto twice = [](auto& row) { row.insert(row.end(), row.begin(), row.begin() + kAll); };
  twice(together.tokens), twice(together.targets), twice(together.starts), twice(together.weights);
  std::rotate(together.tokens.begin() + kAll, together.tokens.begin() + kAll + 7, together.tokens.end());
  std::rotate(together.targets.begin() + kAll, together.targets.begin() + kAll + 7, together.targets.end());
  std::rotate(together.weights.begin() + kAll, together.weights.begin() + kAll + 7, together.weights.end());
  const std::vector<int32_t> other = {0, 1, 17, 25, 32};  // 1, 16, 8, 7
  for (size_t i = 0; i + 1 < other.size(); ++i)
    std::fill(together.starts.begin() + kAll + other[i], together.starts.begin() + kAll + other[i + 1], other[i]);

  const Numbers alone = c.run(4, single), packed = c.run(2, together);
  size_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i)
    for (int64_t t = 0; t < lengths[i]; ++t, ++at)
      ASSERT_NEAR(packed.losses[at], alone.losses[i * kLongest + static_cast<size_t>(t)], 2e-4) << i << ", " << t;
  for (size_t p = 0; p < kAll; ++p) ASSERT_NEAR(packed.losses[kAll + p], packed.losses[(p + 7) % kAll], 2e-4) << p;
  for (const auto& [name, d] : packed.gradients) {
    double most = 0, off = 0;
    for (size_t i = 0; i < d.size(); ++i) {
      most = std::max(most, std::abs(d[i]));
      off = std::max(off, std::abs(d[i] - 2 * alone.gradients.at(name)[i]));
    }
    EXPECT_LE(off, 2e-4 * most + 1e-9) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Packing,
                         testing::Values("llama", "gemma2", "gemma3", "gpt2", "gpt_oss", "qwen3", "mixtral",
                                         "deepseek_v2", "ministral3", "llama4_grows"));

// No family of the library is left out: each is recognised, or refused because it has recurrent states, chunks that are
// counted from the beginning, or an indexer, whose keys are chosen by rotated queries.
TEST(Packing, EveryFamilyIsRecognised) {
  for (const std::string& name : names_in(kFamilies)) {
    const arch::Model m = read_hf(test_library(), kFamilies / name);
    graph::Graph g = m.family->function("token_loss", m.config);
    constexpr const char* kOneLayerOfAttention = "qwen3_5_old_rotation";
    if (m.family->has_function("step") && name != kOneLayerOfAttention &&
        !infer::recurrent_states(m.family->function("step", m.config)).empty()) {
      EXPECT_THROW(g = graph::changed(std::move(g), {.texts_apart = true}), Error) << name;
      continue;
    }
    static const std::map<std::string, std::string> kRefused = {
        {"llama4", "mask divides positions"},
        {"axk2", "become more than factors of scores"},
        {"axk2_groups", "become more than factors of scores"},
        {"deepseek_v32", "become more than factors of scores"},
        {"glm_moe_dsa", "become more than factors of scores"},
        {"glm_moe_dsa_every", "become more than factors of scores"},
    };
    if (const auto refused = kRefused.find(name); refused != kRefused.end()) {
      try {
        g = graph::changed(std::move(g), {.texts_apart = true});
        ADD_FAILURE() << name;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(refused->second), std::string::npos) << name << ": " << e.what();
      }
      continue;
    }
    EXPECT_NO_THROW(g = graph::changed(std::move(g), {.texts_apart = true})) << name;
    EXPECT_GE(g.find_input(graph::kStarts), 0) << name;
  }
}

}  // namespace
}  // namespace lumen::model::data
