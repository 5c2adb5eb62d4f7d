// needs: none. Encoders, in which tokens see all others of their text, against the well-known implementation: ids,
// vectors of batches with padding, files of either kind. The fixtures and the script that makes them:
// encoder_reference.py.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/embed.h"
#include "model/infer/session/step_plan.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

const std::filesystem::path kEncoders = kFixtures / "encoders";

struct Encoder {
  explicit Encoder(const std::string& name)
      : folder(kEncoders / name),
        model(read_hf(test_library(), folder)),
        file(kEncoders / (name + ".safetensors"), test_library()->formats()),
        pooled(numbers<float>(file.get("pooled"))),
        hidden(numbers<float>(file.get("hidden"))) {
    const std::string path = (kEncoders / (name + ".json")).string();
    const nlohmann::json said = parse_json(read_file(path), path);
    texts = said.at("texts").get<std::vector<std::string>>();
    ids = said.at("ids").get<std::vector<std::vector<text::TokenId>>>();
    decoded = said.at("decoded").get<std::vector<std::string>>();
  }

  std::filesystem::path folder;
  arch::Model model;
  file::SafetensorsFile file;
  std::vector<float> pooled, hidden;
  std::vector<std::string> texts, decoded;
  std::vector<std::vector<text::TokenId>> ids;
};

// Vectors of length 1 by the model's own pooling, one behind the other.
std::vector<float> vectors_of(const arch::Model& model, const std::filesystem::path& path,
                              const std::vector<std::vector<text::TokenId>>& ids,
                              EmbedOptions options = {.exact = true}) {
  const LoadedModel loaded(engine(), model);
  Embedder embedder(loaded, options);
  std::vector<float> out;
  for (const auto& vectors : embedder.embed_all(ids, pooling_of(model, path).value())) {
    std::vector<float> one = vectors.at(0);
    normalise(one, 2);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

double most_apart(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? most : INFINITY;
}

class Encoders : public testing::TestWithParam<std::string> {};

TEST_P(Encoders, TextsBecomeTheReferenceIds) {
  const Encoder e(GetParam());
  for (size_t i = 0; i < e.texts.size(); ++i) {
    EXPECT_EQ(e.model.tokenizer->encode(e.texts[i], {.add_special = true}), e.ids[i]) << e.texts[i];
    EXPECT_EQ(e.model.tokenizer->decode(e.ids[i]), e.decoded[i]) << e.texts[i];
  }
}

TEST_P(Encoders, VectorsAreTheReferenceVectors) {
  const Encoder e(GetParam());
  const std::vector<float> all = vectors_of(e.model, e.folder, e.ids);
  EXPECT_LT(most_apart(all, e.pooled), 3e-6);
  EXPECT_EQ(vectors_of(e.model, e.folder, e.ids), all);
  // What stands beside a text, and how far inputs are padded, is no part of them.
  EXPECT_LT(most_apart(vectors_of(e.model, e.folder, e.ids, {.batch = 1, .exact = true}), all), 3e-6);
  const LoadedModel loaded(engine(), e.model);
  Embedder embedder(loaded, {.exact = true});
  std::vector<float> tokens;
  for (const auto& one : embedder.embed(e.ids[0], Pooling::none)) tokens.insert(tokens.end(), one.begin(), one.end());
  EXPECT_LT(most_apart(tokens, e.hidden), 2e-5);
}

TEST_P(Encoders, GoToGgufAndBack) {
  const Encoder e(GetParam());
  const TestFolder folder;
  write_gguf(e.model, folder / "a.gguf");
  const arch::Model g = read_gguf(test_library(), folder / "a.gguf");
  const std::string a = g.metadata.text("general.architecture");
  EXPECT_FALSE(g.metadata.boolean(a + ".attention.causal", true));
  EXPECT_EQ(g.metadata.integer(a + ".pooling_type"), GetParam() == "plain" ? 1 : 2);
  EXPECT_EQ(g.metadata.integer("tokenizer.ggml.token_type_count"), e.model.integer("segments"));
  EXPECT_EQ(g.config, e.model.config);
  for (const std::string& text : e.texts)
    EXPECT_EQ(g.tokenizer->encode(text, {.add_special = true}), e.model.tokenizer->encode(text, {.add_special = true}));
  if (GetParam() == "plain") {  // what other programs read of it says the same
    file::GgufMetadata bare = g.metadata;
    bare.erase("tokenizer.huggingface.json");
    const text::Tokenizer t = text::Tokenizer::from_gguf(bare);
    for (size_t i = 0; i < e.texts.size(); ++i)
      EXPECT_EQ(t.encode(e.texts[i], {.add_special = true}), e.ids[i]) << e.texts[i];
    EXPECT_EQ(bare.integer("tokenizer.ggml.seperator_token_id"), e.ids[0].back());
  }
  const std::vector<float> want = vectors_of(e.model, e.folder, e.ids);
  EXPECT_EQ(vectors_of(g, folder / "a.gguf", e.ids), want);
  write_hf(g, folder / "b");
  const arch::Model b = read_hf(test_library(), folder / "b");
  EXPECT_EQ(vectors_of(b, folder / "b", e.ids), want);
  write_hf(b, folder / "b");  // over what is there
  EXPECT_EQ(pooling_of(b, folder / "b"), pooling_of(e.model, e.folder));
}

TEST_P(Encoders, StayCloseWhenRounded) {
  const Encoder e(GetParam());
  compress::QuantizeOptions options;
  options.target = "int8";
  compress::QuantizeReport report;
  const arch::Model rounded = quantize(engine(), e.model, options, &report);
  const arch::Weight& positions = rounded.weights.at("position_embed");
  EXPECT_TRUE(positions.is_f32()) << "tables of positions stay";
  EXPECT_TRUE(rounded.weights.at("segment_embed").is_f32());
  EXPECT_FALSE(rounded.weights.at("layers.0.up").is_f32());
  const std::vector<float> got = vectors_of(rounded, e.folder, e.ids);
  const size_t width = e.pooled.size() / e.ids.size();
  for (size_t i = 0; i < e.ids.size(); ++i)
    EXPECT_GT(cosine(std::span(got).subspan(i * width, width), std::span(e.pooled).subspan(i * width, width)), 0.995);
}

INSTANTIATE_TEST_SUITE_P(All, Encoders, testing::Values("plain", "masked", "offset"),
                         [](const auto& i) { return i.param; });

// Models that read two texts together, and whose head scores them.
struct Reranker {
  explicit Reranker(const std::string& name) : folder(kEncoders / name), model(read_hf(test_library(), folder)) {
    const std::string path = (kEncoders / (name + ".json")).string();
    const nlohmann::json said = parse_json(read_file(path), path);
    queries = said.at("queries").get<std::vector<std::string>>();
    documents = said.at("documents").get<std::vector<std::string>>();
    scores = said.at("scores").get<std::vector<float>>();
    pairs = {said.at("ids").get<std::vector<std::vector<text::TokenId>>>(),
             said.at("seconds").get<std::vector<int64_t>>()};
  }
  std::vector<float> scores_by(const arch::Model& other, EmbedOptions options = {.exact = true}) const {
    options.scores = true;
    const LoadedModel loaded(engine(), other);
    Embedder scorer(loaded, options);
    return scorer.scores_of(pairs, 0, pairs.sequences.size());
  }

  std::filesystem::path folder;
  arch::Model model;
  std::vector<std::string> queries, documents;
  std::vector<float> scores;
  TextPairs pairs;
};

class Rerankers : public testing::TestWithParam<std::string> {};

TEST_P(Rerankers, PairsBecomeTheReferenceIds) {
  const Reranker r(GetParam());
  for (size_t i = 0; i < r.queries.size(); ++i) {
    const text::Tokenizer::Pair pair = r.model.tokenizer->encode_pair(r.queries[i], r.documents[i]);
    EXPECT_EQ(pair.ids, r.pairs.sequences[i]) << r.queries[i] << " " << r.documents[i];
    EXPECT_EQ(pair.second, r.pairs.seconds[i]) << r.queries[i] << " " << r.documents[i];
  }
  EXPECT_THROW((void)text::Tokenizer::characters("ab").encode_pair("a", "b"), Error);
}

TEST_P(Rerankers, ScoresAreTheReferenceScores) {
  const Reranker r(GetParam());
  const std::vector<float> all = r.scores_by(r.model);
  EXPECT_LT(most_apart(all, r.scores), 5e-6);
  // What stands beside a pair, and how far it is padded, is no part of its score.
  EXPECT_LT(most_apart(r.scores_by(r.model, {.batch = 1, .exact = true}), all), 5e-6);
  const LoadedModel loaded(engine(), r.model);
  Embedder scorer(loaded, {.exact = true, .scores = true});
  EXPECT_LT(most_apart(scorer.scores_of(r.pairs, 3, 5), {all[3], all[4]}), 5e-6);
}

TEST_P(Rerankers, GoToGgufAndBack) {
  const Reranker r(GetParam());
  const TestFolder folder;
  write_gguf(r.model, folder / "a.gguf");
  const arch::Model g = read_gguf(test_library(), folder / "a.gguf");
  EXPECT_EQ(g.metadata.integer(g.metadata.text("general.architecture") + ".pooling_type"), 4);
  EXPECT_EQ(pooling_of(g, folder / "a.gguf"), std::nullopt);
  const std::vector<float> want = r.scores_by(r.model);
  EXPECT_EQ(r.scores_by(g), want);
  write_hf(r.model, folder / "b");
  EXPECT_EQ(r.scores_by(read_hf(test_library(), folder / "b")), want);
  const text::Tokenizer::Pair pair = g.tokenizer->encode_pair(r.queries[0], r.documents[0]);
  EXPECT_EQ(pair.ids, r.pairs.sequences[0]);
}

TEST_P(Rerankers, StayCloseWhenRounded) {
  const Reranker r(GetParam());
  compress::QuantizeOptions options;
  options.target = "int8";
  compress::QuantizeReport report;
  const arch::Model rounded = quantize(engine(), r.model, options, &report);
  EXPECT_FALSE(rounded.weights.at("layers.0.up").is_f32());
  EXPECT_LT(most_apart(r.scores_by(rounded), r.scores), 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, Rerankers, testing::Values("pairs", "pairs_offset"),
                         [](const auto& i) { return i.param; });

TEST(Encoder, ListsOfWordsAreChecked) {
  const TestFolder folder;
  const auto refused = [&](const std::string& words, const std::string& config) {
    write_file_atomic(folder / "vocab.txt", words);
    write_file_atomic(folder / "tokenizer_config.json", config);
    try {
      (void)text::Tokenizer::load(folder.path());
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_FALSE(refused("[UNK]\na\n\n##b\r\n", "{}"));
  EXPECT_EQ(text::Tokenizer::load(folder.path()).encode("AB ba"), (std::vector<text::TokenId>{1, 3, 0}));
  EXPECT_FALSE(refused("?\nA\na", R"({"unk_token": {"content": "?"}, "do_lower_case": false})"));
  EXPECT_EQ(text::Tokenizer::load(folder.path()).encode("A a é"), (std::vector<text::TokenId>{1, 2, 0}));
  EXPECT_TRUE(refused("[UNK]\n\xff\n", "{}"));
  EXPECT_TRUE(refused("a\nb\n", "{}")) << "no token for what is unknown";
  EXPECT_TRUE(refused("", "{}"));
  EXPECT_TRUE(refused("[UNK]\n", "[]"));
  EXPECT_TRUE(refused("[UNK]\n", R"({"do_basic_tokenize": false})"));
  EXPECT_TRUE(refused("[UNK]\n", R"({"never_split": ["a"]})"));
}

TEST(Encoder, RefusesWhatItIsNot) {
  const Encoder e("plain");
  const LoadedModel loaded(engine(), e.model);
  try {
    (void)plan_step(loaded, session_options(e.model, {}));
    ADD_FAILURE() << "an encoder generates nothing";
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("lumen embed"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Embedder(loaded, {.context = 113}), Error) << "beyond the table of positions";
  nlohmann::json config = parse_json(e.model.files.at("config.json"), "config.json");
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    nlohmann::json other = config;
    other[key] = true;
    EXPECT_THROW((void)read_hf_config(*e.model.family, other, "config.json"), Error) << key;
  }
  config["position_embedding_type"] = "relative_key";
  EXPECT_THROW((void)read_hf_config(*e.model.family, config, "config.json"), Error);
}

}  // namespace
}  // namespace lumen::model::infer
