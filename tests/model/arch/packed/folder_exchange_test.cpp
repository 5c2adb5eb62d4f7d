// needs: cpu. Hands folders of packed weights over with what is computed of them here, for the programs that they are
// for (folders_reference.py): dense models and mixtures, the output shared with the embedding or not, with floats or
// activations and caches in few bits.
#include <cstring>

#include "model/arch/checkpoint/packed/pack.h"
#include "model/arch/held_formats.h"
#include "tests/model/arch/packed/folder_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

Model small_mixture(bool tied) {
  const FamilyRef family = test_library()->family("qwen3_moe");
  graph::Config sizes = read_hf(test_library(), kFamilies / "qwen3_moe").config;
  for (const auto& [key, value] : std::map<std::string, double>{{"vocab", 32},
                                                                {"hidden", 128},
                                                                {"heads", 4},
                                                                {"kv_heads", 2},
                                                                {"head_dim", 32},
                                                                {"ffn", 128},
                                                                {"expert_ffn", 128},
                                                                {"context", 16},
                                                                {"tied", tied ? 1 : 0}})
    if (sizes.contains(key)) sizes[key] = value;
  return initialise(family, sizes, 1);
}

// Scales that fit what small models compute, so that nothing is clipped and all is seen.
Model with_inputs(Model m, const std::string& format, bool is_static) {
  std::vector<graph::EncodedInput> inputs;
  for (const Parameter& p : m.parameters)
    if (!p.is_vector() && graph::layer_of(p.name) >= 0 && is_rounded(m.weights.at(p.name)))
      inputs.push_back({p.name, known_formats().get(format), is_static ? std::optional(0.03) : std::nullopt});
  set_encoded_inputs(m, inputs);
  return m;
}

void write_with_logits(const Model& m, const fs::path& folder, const std::string& output) {
  write_model(m, {folder, output});
  const Model back = read_hf(test_library(), folder);
  const infer::LoadedModel loaded(engine(), back);
  const std::vector<text::TokenId> text = {1, 5, 9, 2, 7, 30, 11, 3};
  std::string all;
  infer::Session s(loaded, {.context = 16, .chunk = 4, .exact = true});
  for (const text::TokenId id : text) {
    const auto logits = s.feed(std::vector<text::TokenId>{id});
    all.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  }
  write_file_atomic(folder / "logits.f32", all);
  nlohmann::json ids = text;
  write_file_atomic(folder / "tokens.json", ids.dump());
}

TEST(FolderExchange, Write) {
  const char* out = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!out) GTEST_SKIP() << "without LUMEN_EXCHANGE_DIR";
  struct Case {
    const char *output, *weights, *inputs;
    bool is_static;
  };
  const std::vector<Case> cases = {{"compressed-tensors", "int4_g64", "", false},
                                   {"compressed-tensors", "int8_row", "", false},
                                   {"compressed-tensors", "fp8_row", "", false},
                                   {"compressed-tensors", "fp8_tensor", "", false},
                                   {"compressed-tensors", "fp8_tile", "", false},
                                   {"compressed-tensors", "int8_row", "int8_row", false},
                                   {"compressed-tensors", "int8_row", "int8", true},
                                   {"compressed-tensors", "int8_row", "int8", false},
                                   {"compressed-tensors", "fp8_row", "fp8_row", false},
                                   {"compressed-tensors", "fp8_tensor", "fp8_tensor", true},
                                   {"fp8", "fp8_tile", "", false},
                                   {"fp8", "fp8_tensor", "", false},
                                   {"bnb", "nf4", "", false},
                                   {"bnb", "int8_row", "", false},
                                   {"gptq", "int3_g32", "", false},
                                   {"gptq", "int4_g64", "", false},
                                   {"awq", "int4_g64_asym", "", false}};
  for (const bool tied : {false, true})
    for (const bool mixture : {false, true})
      for (const Case& c : cases) {
        const Model whole = mixture ? small_mixture(tied) : packable_llama(tied);
        Model m = rounded_to(whole, c.weights);
        if (*c.inputs != 0) m = with_inputs(std::move(m), c.inputs, c.is_static);
        const std::string name =
            fmt::format("{}.{}.{}.{}.{}{}", mixture ? "mixture" : "dense", tied ? "tied" : "own", c.output, c.weights,
                        *c.inputs != 0 ? c.inputs : "floats", c.is_static ? "-static" : "");
        // What experts read is one thing here, and has a scale for each expert there.
        if (mixture && *c.inputs != 0) continue;
        write_with_logits(m, fs::path(out) / name, c.output);
        if (tied || mixture || *c.inputs != 0) continue;
        Model plain = m;
        for (auto& [parameter, w] : plain.weights)
          if (is_rounded(w))
            w = f32_weight(w.type.shape, decode(*w.type.element.format, w.bytes, w.rows(), w.columns()));
        write_hf(plain, fs::path(out) / (name + ".plain"));
      }
  Model cached = rounded_to(packable_llama(), "int4_g64");
  for (const char* key : {kCacheKeys, kCacheValues})
    set_encoded_state(cached, key, known_formats().get("fp8_tensor"), {0.03, 0.02});
  write_with_logits(cached, fs::path(out) / "dense.own.compressed-tensors.int4_g64.cache", "compressed-tensors");
}

}  // namespace
}  // namespace lumen::model::arch
