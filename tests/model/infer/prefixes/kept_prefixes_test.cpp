// needs: none. A sequence whose prefix comes from a file is the one that is generated without it, also after a restart.
#include "model/infer/generate/kept_prefixes.h"

#include <fstream>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/sequence_batch.h"
#include "tests/model/families/family_case.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

arch::Model long_model(const std::string& family = "llama", double window = 0) {
  graph::Config values = {{"vocab", 11},   {"hidden", 16},   {"layers", 2}, {"heads", 4},
                          {"kv_heads", 2}, {"head_dim", 32}, {"ffn", 20},   {"context", 400}};
  if (window > 0) values["window_size"] = window;
  arch::Model m = initialise(test_library()->family(family), test_library()->family(family)->config("", values), 1);
  for (auto& [name, w] : m.weights) {
    std::vector<float> scaled(w.f32().begin(), w.f32().end());
    for (float& v : scaled) v *= m.find(name)->init == "ones" || m.find(name)->frozen ? 1 : 15;
    w = arch::f32_weight(w.type.shape, scaled);
  }
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

SessionOptions long_session(const std::string& format = "") {
  SessionOptions session;
  session.context = 800;
  session.chunk = 64;
  session.exact = true;
  if (!format.empty()) session.keys = session.values = test_library()->formats().find(format);
  return session;
}

std::string prompt(size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text += char('a' + (i * i + i / 7) % 10);
  return text;
}

// One sequence of a batch that was begun anew.
ManyAnswer written(const LoadedModel& loaded, const std::shared_ptr<PrefixFiles>& files, const std::string& text,
                   int64_t set = 0, const std::string& format = "") {
  SequenceBatch batch(loaded, long_session(format), {.sequences = 2, .kept = 2}, 2);
  EXPECT_TRUE(!files || batch.keep_in(files));
  SequenceOrder order;
  order.prompt = loaded.model().tokenizer->encode(text);
  order.set = set;
  order.sampling.temperature = 0.8;
  order.sampling.seed = 3;
  order.generate.predict = 12;
  ManyAnswer out;
  order.done = [&](const ManyAnswer& answer) { out = answer; };
  batch.add(std::move(order));
  while (batch.step()) {
  }
  return out;
}

std::shared_ptr<PrefixFiles> files_in(const TestFolder& folder, int64_t most = 1 << 24) {
  return std::make_shared<PrefixFiles>(folder.path(), most, "test");
}

TEST(KeptPrefixes, ARestartReadsWhatWasRead) {
  const arch::Model m = long_model();
  const LoadedModel loaded(engine(), m);
  for (const std::string format : {"", "q8_0"}) {
    const TestFolder folder;
    const std::string wanted = written(loaded, nullptr, prompt(200), 0, format).text;
    const ManyAnswer first = written(loaded, files_in(folder), prompt(200), 0, format);
    EXPECT_EQ(first.text, wanted);
    EXPECT_EQ(first.from_disk, 0);
    const ManyAnswer again = written(loaded, files_in(folder), prompt(200), 0, format);
    EXPECT_EQ(again.text, wanted);
    EXPECT_EQ(again.from_disk, 192);
    EXPECT_EQ(again.shared, 192);
    // A prompt that goes on otherwise has what is the same of it; the last token is always computed.
    EXPECT_EQ(written(loaded, files_in(folder), prompt(150) + "aaaaaaa", 0, format).from_disk, 128);
    EXPECT_EQ(written(loaded, files_in(folder), prompt(128), 0, format).from_disk, 64);
    EXPECT_EQ(written(loaded, files_in(folder), "a" + prompt(200), 0, format).from_disk, 0);
    EXPECT_EQ(written(loaded, files_in(folder), prompt(200), 0, format.empty() ? "q8_0" : "").from_disk, 0);
  }
}

TEST(KeptPrefixes, ADamagedBlockIsComputedAgain) {
  const arch::Model m = long_model();
  const LoadedModel loaded(engine(), m);
  const TestFolder folder;
  const std::string wanted = written(loaded, files_in(folder), prompt(200)).text;
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.is_regular_file() && entry.file_size() > 1000) all.push_back(entry.path());
  ASSERT_EQ(all.size(), 3U);
  std::fstream(all[1], std::ios::in | std::ios::out).seekp(600).put('\x55').put('\xaa');
  const auto files = files_in(folder);
  const ManyAnswer again = written(loaded, files, prompt(200));
  EXPECT_EQ(again.text, wanted);
  EXPECT_LT(again.from_disk, 192);
  EXPECT_EQ(files->numbers().refused, 1);
  files->finish();
  EXPECT_EQ(written(loaded, files_in(folder), prompt(200)).from_disk, 192);  // written anew
}

TEST(KeptPrefixes, OtherWeightsAndAdaptersHaveTheirOwn) {
  const arch::Model m = long_model();
  arch::Model other = m;
  std::vector<float> values(m.weights.at("norm").f32().begin(), m.weights.at("norm").f32().end());
  values[0] += 0.25F;
  other.weights.at("norm") = arch::f32_weight(m.weights.at("norm").type.shape, values);
  arch::ScaledAdapter adapter;
  const arch::Parameter& p = m.parameters.at(1).is_vector() ? *m.find("layers.0.wq") : m.parameters.at(1);
  adapter.adapter.parts[p.name].a = arch::f32_weight({1, p.shape[1]}, std::vector<float>(p.shape[1].number(), 0.5F));
  adapter.adapter.parts[p.name].b = arch::f32_weight({p.shape[0], 1}, std::vector<float>(p.shape[0].number(), 0.5F));
  const std::vector<arch::AdapterSet> sets = {{}, {adapter}};
  const TestFolder folder;
  const LoadedModel one(engine(), m), two(engine(), other), both(engine(), m, sets);
  EXPECT_EQ(written(one, files_in(folder), prompt(140)).from_disk, 0);
  EXPECT_EQ(written(two, files_in(folder), prompt(140)).from_disk, 0);
  EXPECT_EQ(written(both, files_in(folder), prompt(140), 1).from_disk, 0);
  EXPECT_EQ(written(both, files_in(folder), prompt(140), 0).from_disk, 0);
  EXPECT_EQ(written(both, files_in(folder), prompt(140), 1).from_disk, 128);
}

// States are read at the last end of a block in a prompt, and where a chunk ended; without attention they are all there
// is to read.
TEST(KeptPrefixes, RecurrentStatesAreReadAtMarks) {
  for (const char* family : {"qwen3_5", "mamba2", "lfm2"}) {
    SCOPED_TRACE(family);
    arch::Model m = read_hf(test_library(), kFamilies / family);
    m.config["context"] = 400;
    m.tokenizer = text::Tokenizer::characters("abcdefghij ");
    const LoadedModel loaded(engine(), m);
    const TestFolder folder;
    const std::string wanted = written(loaded, nullptr, prompt(200)).text;
    const ManyAnswer first = written(loaded, files_in(folder), prompt(200));
    EXPECT_EQ(first.text, wanted);
    EXPECT_EQ(first.from_disk, 0);
    const ManyAnswer again = written(loaded, files_in(folder), prompt(200));
    EXPECT_EQ(again.text, wanted);
    EXPECT_EQ(again.from_disk, 192);
    const std::string other = prompt(150) + "aaaaaaa";
    const ManyAnswer turned = written(loaded, files_in(folder), other);
    EXPECT_EQ(turned.from_disk, 128);  // chunks have 64 tokens
    EXPECT_EQ(turned.text, written(loaded, nullptr, other).text);
    EXPECT_EQ(written(loaded, files_in(folder), "a" + prompt(200)).from_disk, 0);
    // Without the states of that place those of an earlier one are read.
    const std::string longer = prompt(200) + "abcabc";
    EXPECT_EQ(written(loaded, files_in(folder), longer).from_disk, 192);
    EXPECT_EQ(written(loaded, files_in(folder), longer).text, written(loaded, nullptr, longer).text);
  }
}

// Little room on disk, and little in the cache.
TEST(KeptPrefixes, BoundsAreKept) {
  const arch::Model m = long_model();
  const LoadedModel loaded(engine(), m);
  const TestFolder folder;
  const std::string wanted = written(loaded, nullptr, prompt(200)).text;
  EXPECT_EQ(written(loaded, files_in(folder, 100), prompt(200)).text, wanted);
  EXPECT_EQ(written(loaded, files_in(folder, 100), prompt(200)).from_disk, 0);
  const auto one_file = files_in(folder, 90'000);
  EXPECT_EQ(written(loaded, one_file, prompt(200)).text, wanted);
  EXPECT_LE(one_file->numbers().bytes, 90'000);
  EXPECT_EQ(written(loaded, one_file, prompt(200)).text, wanted);
}

TEST(KeptPrefixes, LayersThatForgetKeepNothing) {
  const arch::Model m = long_model("mistral", 16);
  const LoadedModel loaded(engine(), m);
  const TestFolder folder;
  SequenceBatch batch(loaded, long_session(), {.sequences = 2, .kept = 2}, 2);
  EXPECT_FALSE(batch.keep_in(files_in(folder)));
}

}  // namespace
}  // namespace lumen::model::infer
