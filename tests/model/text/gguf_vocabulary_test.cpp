// needs: none. Vocabularies that a model's embedding is longer than, and the tokens at which texts end, from folders to
// GGUF files and back, and in texts that are written.
#include "model/text/tokenizer/file/gguf_vocabulary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/generate_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::text {
namespace {

constexpr int64_t kTokens = 20, kVocabulary = 32;  // with a gap at 18
constexpr const char* kTokenizer = R"({"added_tokens": [
    {"id": 16, "content": "<s>", "special": true}, {"id": 17, "content": "<e>", "special": true},
    {"id": 19, "content": "<f>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7,
    "i": 8, "j": 9, "k": 10, "l": 11, "m": 12, "n": 13, "o": 14, "p": 15}}})";

// A model with more rows than its tokenizer has tokens; `loved` is what it always finds likeliest.
arch::Model padded_model(std::initializer_list<TokenId> loved = {}) {
  const arch::FamilyRef family = test_library()->family("llama");
  const graph::Config config = family->config(
      "tiny", {{"vocab", static_cast<double>(kVocabulary)}, {"hidden", 32}, {"heads", 2}, {"kv_heads", 2}});
  arch::Model m = initialise(family, config, 3);
  m.name = "padded";
  if (loved.size() > 0) {
    // All hidden states are alike: nothing but the embedding's last number, which is always 1, leaves the layers.
    for (const arch::Parameter& p : m.parameters) {
      arch::Weight& w = m.weights.at(p.name);
      std::vector<float> values(w.f32().size(), p.shape.size() == 1 ? 1.0f : 0.0f);
      const auto columns = static_cast<size_t>(w.columns());
      for (size_t r = 0; p.name == "embed" && r < values.size() / columns; ++r) values[r * columns] = 1;
      float score = 8;
      if (p.name == "output")
        for (const TokenId id : loved) values[static_cast<size_t>(id) * columns] = score--;
      w = arch::f32_weight(w.type.shape, values);
    }
  }
  m.tokenizer = Tokenizer::from_json(kTokenizer, "padded");
  return m;
}

std::string written(const arch::Model& m, infer::SamplerOptions sampling, infer::GenerateOptions options,
                    infer::EndReason* reason = nullptr, std::unique_ptr<infer::Draft> draft = nullptr) {
  const infer::LoadedModel loaded(engine(), m);
  infer::Generator g(loaded, {.context = 24, .chunk = 8}, std::move(sampling), std::move(options), std::move(draft));
  const std::vector<TokenId> prompt = m.tokenizer->encode("ab");
  const auto result = g.answer(prompt, true, [](std::string_view) {}, [] { return true; });
  if (reason) *reason = result.reason;
  return result.text;
}

TEST(GgufVocabulary, FilesNameAsManyTokensAsTheEmbeddingHasRows) {
  const TestFolder folder;
  write_hf(padded_model(), folder / "a");
  const arch::Model a = read_hf(test_library(), folder / "a");
  write_gguf(a, folder / "a.gguf");
  const file::GgufMetadata m = read_gguf(test_library(), folder / "a.gguf").metadata;
  const auto& tokens = m.texts("tokenizer.ggml.tokens");
  const auto kinds = m.integers("tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), kVocabulary);
  ASSERT_EQ(kinds.size(), kVocabulary);
  for (const size_t i : {size_t{18}, size_t{20}, size_t{31}}) {
    EXPECT_EQ(tokens[i], fmt::format("[PAD{}]", i));
    EXPECT_EQ(kinds[i], static_cast<int64_t>(TokenKind::unused));
  }
  EXPECT_EQ(tokens[19], "<f>");
  // The same tokenizer, and the same folder.
  const arch::Model g = read_gguf(test_library(), folder / "a.gguf");
  EXPECT_EQ(g.tokenizer->size(), kTokens);
  EXPECT_FALSE(g.tokenizer->has(18));
  EXPECT_FALSE(g.tokenizer->has(25));
  EXPECT_TRUE(g.tokenizer->has(19));
  EXPECT_FALSE(g.tokenizer->has(-1));
  write_hf(g, folder / "b");
  const auto json = [&](const char* name) {
    return nlohmann::json::parse(read_file(folder / name / "tokenizer.json"));
  };
  EXPECT_EQ(json("b")["model"]["vocab"], json("a")["model"]["vocab"]);
  EXPECT_EQ(json("b")["added_tokens"], json("a")["added_tokens"]);
  EXPECT_EQ(read_file(folder / "b" / "tokenizer.json").find("PAD"), std::string::npos);
  // A file without padding gets it when it is written again.
  file::GgufMetadata old;
  a.tokenizer->to_gguf(old);
  EXPECT_EQ(old.texts("tokenizer.ggml.tokens").size(), kTokens);
  arch::Model again = a;
  again.files.clear();
  for (const auto& [key, value] : old.entries()) again.metadata.set(key, value);
  write_gguf(again, folder / "c.gguf");
  EXPECT_EQ(read_gguf(test_library(), folder / "c.gguf").metadata.texts("tokenizer.ggml.tokens").size(), kVocabulary);
}

TEST(GgufVocabulary, PaddingIsUnlikeEveryToken) {
  file::GgufMetadata m;
  m.set("tokenizer.ggml.tokens", file::GgufArray(std::vector<std::string>{"[PAD3]", "x"}));
  m.set("tokenizer.ggml.scores", file::GgufArray(std::vector<float>{-1, -2}));
  pad_vocabulary(m, 4);
  EXPECT_EQ(m.texts("tokenizer.ggml.tokens"), (std::vector<std::string>{"[PAD3]", "x", "[PAD2]", "[PAD3_]"}));
  EXPECT_EQ(m.integers("tokenizer.ggml.token_type"), (std::vector<int64_t>{1, 1, 5, 5}));
  EXPECT_EQ(m.numbers("tokenizer.ggml.scores"), (std::vector<double>{-1, -2, -10000, -10000}));
  EXPECT_FALSE(is_padding("[PAD3]", TokenKind::normal));
  EXPECT_TRUE(is_padding("[PAD3_]", TokenKind::unused));
  EXPECT_FALSE(is_padding("[PAD]", TokenKind::unused));
  EXPECT_FALSE(is_padding("<unused3>", TokenKind::unused));
  m.set("tokenizer.ggml.token_type", file::GgufArray(std::vector<int32_t>{1}));
  EXPECT_THROW(pad_vocabulary(m, 9), Error);
}

TEST(GgufVocabulary, IdsWithoutTokensAreNeverDrawn) {
  const arch::Model m = padded_model({25, 18, 31, 3, 2});
  EXPECT_EQ(infer::never_drawn(*m.tokenizer, kVocabulary, false).size(), kVocabulary - kTokens + 1);
  const infer::GenerateOptions five{.predict = 5};
  EXPECT_EQ(written(m, {.temperature = 0}, five), "ddddd");
  // Whatever bias asks for.
  EXPECT_EQ(written(m, {.temperature = 0, .bias = {{25, 1e9}, {3, -INFINITY}, {31, -INFINITY}}}, five), "ccccc");
  EXPECT_EQ(written(m, {.temperature = 0}, {.predict = 5, .grammar = "root ::= [a-h]+"}), "ddddd");
  EXPECT_EQ(written(m, {.temperature = 0}, five, nullptr, std::make_unique<infer::LookUpDraft>()), "ddddd");
  const infer::LoadedModel small(engine(), m);
  EXPECT_EQ(written(m, {.temperature = 0}, five, nullptr,
                    std::make_unique<infer::ModelDraft>(small, infer::SessionOptions{.context = 24, .chunk = 8},
                                                        infer::never_drawn(*m.tokenizer, kVocabulary, false))),
            "ddddd");
  for (uint32_t seed = 0; seed < 20; ++seed) {
    for (const int mirostat : {0, 1, 2}) {
      const std::string text =
          written(m, {.temperature = 3, .top_k = 0, .top_p = 1, .min_p = 0, .mirostat = mirostat, .seed = seed}, five);
      EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'p'; })) << text;
    }
  }
  infer::ManyOptions many;
  many.sampling.temperature = 0;
  many.generate = five;
  const std::vector<infer::ManyRequest> requests = {{{0, 1}, 1}, {{2}, 2}};
  for (const infer::ManyAnswer& answer : answer_all(small, many, requests, {}, [] { return true; }))
    EXPECT_EQ(answer.text, "ddddd");
}

TEST(GgufVocabulary, TokensBeyondTheModelAreAnError) {
  const arch::Model m = padded_model();
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = 8, .chunk = 8});
  const std::vector<TokenId> beyond = {0, kVocabulary};
  EXPECT_THROW((void)s.feed(beyond), Error);
  EXPECT_THROW((void)s.feed_all(beyond), Error);
}

// config.json and generation_config.json name the ends where no tokenizer_config.json does.
TEST(Ends, OfConfigFilesEndTexts) {
  const TestFolder folder;
  const arch::Model loves = padded_model({19, 4, 25, 3});
  write_hf(loves, folder / "a");
  std::filesystem::remove(folder / "a" / "tokenizer_config.json");
  std::filesystem::remove(folder / "a" / "generation_config.json");
  auto config = nlohmann::json::parse(read_file(folder / "a" / "config.json"));
  const auto with = [&](const nlohmann::json& in_config, const nlohmann::json& in_generation) {
    config["eos_token_id"] = in_config;
    write_file_atomic(folder / "a" / "config.json", config.dump());
    std::filesystem::remove(folder / "a" / "generation_config.json");
    if (!in_generation.is_null())
      write_file_atomic(folder / "a" / "generation_config.json",
                        nlohmann::json{{"eos_token_id", in_generation}}.dump());
    return read_hf(test_library(), folder / "a");
  };
  const auto ends = [](const arch::Model& m) { return m.tokenizer->end_of_generation(); };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ends(with(nullptr, nullptr)), Ids());
  EXPECT_EQ(ends(with(19, nullptr)), Ids{19});
  EXPECT_EQ(ends(with({19, 17}, nullptr)), (Ids{17, 19}));
  EXPECT_EQ(ends(with(19, Ids{17, 25})), (Ids{17, 19, 25}));
  EXPECT_EQ(ends(with(50256, -1)), Ids());
  EXPECT_THROW(with("x", nullptr), Error);
  EXPECT_THROW(with(1.5, nullptr), Error);
  EXPECT_THROW(with({1, nullptr}, nullptr), Error);

  infer::EndReason reason;
  const infer::GenerateOptions five{.predict = 5};
  EXPECT_EQ(written(with(nullptr, nullptr), {.temperature = 0}, five, &reason), "");  // control tokens show nothing
  EXPECT_EQ(reason, infer::EndReason::limit);
  EXPECT_EQ(written(with(19, nullptr), {.temperature = 0}, five, &reason), "");
  EXPECT_EQ(reason, infer::EndReason::end_token);
  // Nobody draws an end where ends are to be ignored: neither as text nor as anything else.
  EXPECT_EQ(written(with(19, Ids{4}), {.temperature = 0}, {.predict = 5, .ignore_end = true}, &reason), "ddddd");
  EXPECT_EQ(reason, infer::EndReason::limit);
  EXPECT_EQ(written(with(19, Ids{4}), {.temperature = 0},
                    {.predict = 5, .grammar = "root ::= [a-h]+", .ignore_end = true}, &reason),
            "ddddd");
  // An end need not be a token.
  EXPECT_EQ(written(with(25, nullptr), {.temperature = 0, .bias = {{19, -INFINITY}, {4, -INFINITY}}}, five, &reason),
            "");
  EXPECT_EQ(reason, infer::EndReason::end_token);
}

TEST(Ends, GoThroughGgufFiles) {
  const TestFolder folder;
  write_hf(padded_model(), folder / "a");
  for (const char* name : {"tokenizer_config.json", "generation_config.json"})
    std::filesystem::remove(folder / "a" / name);
  using Ids = std::vector<TokenId>;
  for (const Ids& named : {Ids{19}, Ids{19, 17}, Ids{4, 19, 17}, Ids{25, 4, 19, 3, 17}}) {
    auto config = nlohmann::json::parse(read_file(folder / "a" / "config.json"));
    config["eos_token_id"] = named;
    write_file_atomic(folder / "a" / "config.json", config.dump());
    const arch::Model a = read_hf(test_library(), folder / "a");
    write_gguf(a, folder / "a.gguf");
    const arch::Model g = read_gguf(test_library(), folder / "a.gguf");
    EXPECT_EQ(g.metadata.integer("tokenizer.ggml.eos_token_id"), named[0]);
    EXPECT_EQ(g.metadata.integer("tokenizer.ggml.eot_token_id", -1), named.size() > 1 ? named[1] : -1);
    EXPECT_EQ(g.metadata.integer("tokenizer.ggml.eom_token_id", -1), named.size() > 2 ? named[2] : -1);
    EXPECT_EQ(g.tokenizer->end_of_generation(), a.tokenizer->end_of_generation());
    write_hf(g, folder / "b");
    for (const char* name : {"config.json", "generation_config.json"}) {
      const auto back = nlohmann::json::parse(read_file(folder / "b" / name));
      EXPECT_EQ(back["eos_token_id"], named.size() == 1 ? nlohmann::json(named[0]) : nlohmann::json(named)) << name;
    }
    // Once more the same.
    write_gguf(g, folder / "b.gguf");
    EXPECT_EQ(read_gguf(test_library(), folder / "b.gguf").tokenizer->end_of_generation(),
              a.tokenizer->end_of_generation());
  }
}

TEST(Ends, OfATokenizerWithoutAnyAreSaidToBeNone) {
  const TestFolder folder;
  write_hf(padded_model(), folder / "a");
  const auto config = nlohmann::json::parse(read_file(folder / "a" / "config.json"));
  EXPECT_TRUE(config.at("eos_token_id").is_null());
  EXPECT_TRUE(config.at("bos_token_id").is_null());
}

// A token that ends a part of a turn is no end where the vocabulary has those that end the turn.
TEST(Ends, OfPartsOfATurn) {
  const auto ends = [](std::vector<std::string> texts) {
    nlohmann::json added = nlohmann::json::array();
    for (size_t i = 0; i < texts.size(); ++i)
      added.push_back({{"id", 1 + i}, {"content", texts[i]}, {"special", true}});
    const nlohmann::json root = {
        {"added_tokens", added},
        {"pre_tokenizer", {{"type", "ByteLevel"}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}, {"vocab", {{"a", 0}}}}}};
    return Tokenizer::from_json(root.dump(), "ends").end_of_generation();
  };
  EXPECT_EQ(ends({"<|end|>"}), (std::vector<TokenId>{1}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|call|>"}), (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(ends({"<|end|>", "<|calls|>", "<|flush|>"}), (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>"}), (std::vector<TokenId>{1, 2}));
}

TEST(Ends, HostileIdsAreErrors) {
  file::GgufMetadata m;
  padded_model().tokenizer->to_gguf(m);
  const auto refused = [&](const char* key, file::GgufValue value) {
    file::GgufMetadata bad = m;
    bad.set(key, std::move(value));
    EXPECT_THROW(Tokenizer::from_gguf(bad), Error) << key;
  };
  refused("lumen.end_token_ids", file::GgufArray(std::vector<uint32_t>{1, 99}));
  refused("lumen.end_token_ids", std::string("1"));
  refused("tokenizer.ggml.eos_token_id", uint32_t{20});
  refused("tokenizer.ggml.eot_token_id", uint32_t{4000000000});
}

}  // namespace
}  // namespace lumen::model::text
