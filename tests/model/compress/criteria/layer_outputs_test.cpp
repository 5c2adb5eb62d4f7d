// needs: cpu. One weight of a layer replaced: what is handed on, against running the layer by itself, and what
// attentions look at.
#include "model/compress/criteria/layer_outputs.h"

#include <gtest/gtest.h>

#include "model/compress/quantize.h"
#include "tests/model/compress/round/moments.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

struct Case {
  explicit Case(const std::string& family) : engine(engine_options()) {
    const arch::FamilyRef f = test_library()->family(family);
    std::map<std::string, double> sizes{{"vocab", 24}, {"hidden", 64}, {"layers", 2},
                                        {"heads", 2},  {"ffn", 64},    {"context", 32}};
    if (family == "mixtral") sizes["experts"] = 4;
    model = initialise(f, f->config("", {sizes.begin(), sizes.end()}), 5);
    for (int64_t i = 0; i < 6 * 16; ++i) text.push_back(i * 5 % 23);
    run = std::make_unique<calibrate::LayerRun>(engine, model, text,
                                                calibrate::LayerRunOptions{.length = 16, .batch = 2});
  }
  calibrate::LayerRun::WeightOf weights() {
    return [this](const std::string& name) -> std::span<const float> {
      const auto changed = other.find(name);
      if (changed != other.end()) return changed->second;
      std::vector<float>& values = held[name];
      if (values.empty()) values = values_of(engine, model.weights.at(name));
      return values;
    };
  }
  run::Engine engine;
  arch::Model model;
  std::vector<text::TokenId> text;
  std::unique_ptr<calibrate::LayerRun> run;
  std::map<std::string, std::vector<float>> held, other;
};

std::vector<float> handed_on(Case& c, calibrate::CarriedValues* from) {
  calibrate::CarriedValues to({}, "to");
  (void)c.run->run(1, c.weights(), from, &to);
  std::vector<float> all;
  for (const int number : c.run->part(1).out) {
    std::vector<float> values(static_cast<size_t>(c.run->windows() * c.run->carried_bytes(number) / 4));
    to.read(number, 0, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 4});
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(LayerOutputs, AreThoseOfTheLayer) {
  for (const char* family : {"llama", "mixtral", "gpt2"}) {
    Case c(family);
    calibrate::CarriedValues from({}, "from");
    (void)c.run->run(0, c.weights(), nullptr, &from);
    LayerOutputs outputs(c.engine, *c.run, 1, c.weights(), &from, c.run->windows());
    const std::vector<float> truth = handed_on(c, &from);
    int looked = 0;
    for (const std::string& name : c.run->part(1).parameters) {
      const arch::Parameter& p = *c.model.find(name);
      if (p.is_vector() || graph::layer_of(name) != 1) continue;
      const std::span<const float> own = c.weights()(name);
      EXPECT_LT(outputs.with(name, own).outputs, 1e-9) << name;
      std::vector<float> moved(own.begin(), own.end());
      const std::vector<float> noise = normals(std::ssize(moved), 7, 0.2F);
      for (size_t k = 0; k < moved.size(); ++k) moved[k] += noise[k];
      const OutputLoss lost = outputs.with(name, moved);
      c.other[name] = moved;
      const std::vector<float> got = handed_on(c, &from);
      c.other.clear();
      double off = 0, size = 0;
      for (size_t k = 0; k < got.size(); ++k) {
        off += (double{got[k]} - truth[k]) * (double{got[k]} - truth[k]);
        size += double{truth[k]} * truth[k];
      }
      EXPECT_NEAR(lost.outputs, off / size, 1e-3 * off / size) << family << ' ' << name;
      EXPECT_GT(off, 0) << name;
      looked += lost.attention > 1e-6;
      const OutputLoss again = outputs.with(name, own);  // the layer is what it was
      EXPECT_LT(again.outputs, 1e-9) << name;
      EXPECT_LT(again.attention, 1e-6) << name;
    }
    EXPECT_EQ(looked, family == std::string("gpt2") ? 1 : 2) << family;  // queries and keys, which GPT-2 makes as one
  }
}

}  // namespace
}  // namespace lumen::model::compress
