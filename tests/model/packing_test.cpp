// needs: none. Several texts in one window: every family's losses and gradients are those of the texts one by one.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "family_case.h"
#include "graph/grad/reverse.h"
#include "graph/pass/segments.h"
#include "model/arch/read.h"
#include "model/train/optimizer.h"

namespace lumen::model {
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
    for (const Parameter& p : model_.parameters)
      if (!p.frozen && wanted_.size() < 6 && (p.name.starts_with("layers.0.") || !p.is_vector())) wanted_.push_back(&p);
  }

  Expected expected;

  // Rows of tokens, targets, and starts where texts share rows.
  Numbers run(int64_t rows, const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
              const std::vector<int32_t>& starts) {
    const auto length = static_cast<int64_t>(tokens.size()) / rows;
    graph::Graph g = model_.family->function("token_loss", model_.config);
    if (!starts.empty()) graph::keep_texts_apart(g);
    graph::inline_calls(g);
    const graph::ValueId losses = g.results[0];
    graph::Builder b(g);
    const graph::ValueId loss = b.reshape(b.reduce(losses, graph::Reduction::sum, {0, 1}), {});
    std::vector<graph::ValueId> by;
    for (const Parameter* p : wanted_) by.push_back(g.find_input(p->name));
    for (const graph::ValueId d : graph::differentiate(g, loss, by)) g.results.push_back(d);
    for (const Parameter* p : wanted_) g.result_names.push_back("d." + p->name);
    run::CompileOptions options;
    options.assignments = stored_formats(model_);
    options.symbols = {{"B", rows}, {"T", length}};
    options.exact = true;
    const auto program = engine().compile(g, options);
    for (const std::string& name : program->input_names()) {
      program->bind(name, name == "tokens"         ? tensor_of({rows, length}, tokens)
                          : name == "targets"      ? tensor_of({rows, length}, targets)
                          : name == graph::kStarts ? tensor_of({rows, length}, starts)
                                                   : loaded_.weights().at(name));
    }
    program->run();
    Numbers out;
    out.losses = download(*program, g.result_names[0], rows * length);
    for (const Parameter* p : wanted_) {
      const std::vector<float> got = download(*program, "d." + p->name, p->count());
      out.gradients[p->name] = {got.begin(), got.end()};
    }
    return out;
  }

 private:
  static std::vector<float> download(run::Program& program, const std::string& name, int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    program.result(name)->download(out.data(), count * static_cast<int64_t>(sizeof(float)));
    return out;
  }

  Model model_;
  LoadedModel loaded_;
  std::vector<const Parameter*> wanted_;
};

TEST_P(Packing, TextsInOneWindowAreTextsAlone) {
  Case c(GetParam());
  const std::vector<int64_t> lengths = {7, 1, 16, 8};
  const int64_t all = 32;
  std::vector<int32_t> tokens, targets, starts;
  Numbers alone;
  for (const int64_t length : lengths) {
    const auto text = c.expected.text(static_cast<int64_t>(starts.size()) % 2);
    const std::vector<int32_t> own(text.begin(), text.begin() + length),
        next(text.begin() + 1, text.begin() + length + 1);
    const Numbers one = c.run(1, own, next, {});
    alone.losses.insert(alone.losses.end(), one.losses.begin(), one.losses.end());
    for (const auto& [name, d] : one.gradients) {
      auto& sum = alone.gradients[name];
      sum.resize(d.size(), 0.0);
      for (size_t i = 0; i < d.size(); ++i) sum[i] += d[i];
    }
    const auto begin = static_cast<int32_t>(starts.size());
    starts.insert(starts.end(), static_cast<size_t>(length), begin);
    tokens.insert(tokens.end(), own.begin(), own.end());
    targets.insert(targets.end(), next.begin(), next.end());
  }
  // A second row with the same texts in it.
  for (auto* row : {&tokens, &targets, &starts}) row->insert(row->end(), row->begin(), row->begin() + all);
  const Numbers packed = c.run(2, tokens, targets, starts);
  for (size_t i = 0; i < packed.losses.size(); ++i)
    ASSERT_NEAR(packed.losses[i], alone.losses[i % static_cast<size_t>(all)], 2e-4) << "position " << i;
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
                                         "deepseek_v3"));

// No family of the library is left out: each is recognised.
TEST(Packing, EveryFamilyIsRecognised) {
  for (const std::string& name : names_in(kFamilies)) {
    const Model m = read_hf(test_library(), kFamilies / name);
    graph::Graph g = m.family->function("token_loss", m.config);
    EXPECT_NO_THROW(graph::keep_texts_apart(g)) << name;
    EXPECT_GE(g.find_input(graph::kStarts), 0) << name;
  }
}

}  // namespace
}  // namespace lumen::model
