// needs: cpu. What a run has kept is taken as it was written or not at all: bits flipped anywhere, entries that are
// missing, unknown or of another kind, parts of another moment, and other models.
#include "model/compress/layers/journal.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/file/file.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

namespace fs = std::filesystem;

void put_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// What is told on stderr meanwhile.
std::string warnings_of(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

arch::Weight weight_of(int64_t count, float first) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = first + i;
  return arch::f32_weight({graph::Dim(count)}, values);
}

class JournalFiles : public testing::Test {
 protected:
  JournalFiles() : own_(folder_ / "w" / ("user-" + std::to_string(::geteuid()))) {
    Journal journal(folder_ / "w", "key", false);
    const arch::Weight a = weight_of(3, 1), b = weight_of(20, 2), c = weight_of(1, 9);
    journal.add(0, {{"a", &a}, {"b", &b}}, {{{"a", "rtn", "", 0.5, -1}}, {}, {}}, {});
    journal.add(1, {{"c", &c}}, {{{"c", "rtn", "", 0.5, -1}}, {}, {1, 2}}, {{"rounded", {{5, Seal{1, 2}}}}});
  }
  fs::path file(const std::string& name) const { return own_ / "work" / name; }

  TestFolder folder_;
  fs::path own_;
};

TEST_F(JournalFiles, ComeBack) {
  Journal journal(folder_ / "w", "key", false);
  EXPECT_EQ(journal.first_missing(), 2u);
  EXPECT_EQ(journal.weight("b", nullptr)->f32()[19], 21);
  EXPECT_EQ(journal.weight("b", nullptr, 1)->f32()[0], 2);
  EXPECT_FALSE(journal.weight("c", nullptr, 1));
  EXPECT_FALSE(journal.weight("d", nullptr));
  EXPECT_EQ(journal.report(1).losses, (std::vector<float>{1, 2}));
  EXPECT_EQ(journal.report(0).lines[0].error, 0.5);
  EXPECT_EQ(journal.values(1)->at("rounded").at(5), (Seal{1, 2}));
  EXPECT_FALSE(journal.values(0));
  EXPECT_EQ(fs::status(own_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(file("part-00000")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  journal.remove();
  EXPECT_FALSE(fs::exists(folder_ / "w"));
}

// Every byte of a part, and of the journal.
TEST_F(JournalFiles, NoByteMayBeAnother) {
  const std::string part = read_file(file("part-00000")), journal = read_file(file("journal"));
  for (size_t at = 0; at < part.size(); ++at) {
    std::string changed = part;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    put_bytes(file("part-00000"), changed);
    const std::string words = warnings_of([&] {
      const Journal again(folder_ / "w", "key", false);
      EXPECT_FALSE(again.has(0)) << at;
      EXPECT_TRUE(again.has(1)) << at;
      EXPECT_FALSE(again.weight("a", nullptr)) << at;
    });
    EXPECT_NE(words.find("part-00000"), std::string::npos) << at << words;
  }
  put_bytes(file("part-00000"), part);
  for (size_t at = 0; at < journal.size(); ++at) {
    put_bytes(file("part-00000"), part);
    std::string changed = journal;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    put_bytes(file("journal"), changed);
    const std::string words = warnings_of([&] {
      const Journal again(folder_ / "w", "key", false);
      EXPECT_EQ(again.end(), 0u) << at;
    });
    EXPECT_NE(words.find("journal' "), std::string::npos) << at << words;
  }
}

TEST_F(JournalFiles, PartsOfAnotherMomentOrPlaceAreNotTaken) {
  const std::string part = read_file(file("part-00000"));
  put_bytes(file("part-00001"), part);  // whole, but another one's
  (void)warnings_of([&] { EXPECT_FALSE(Journal(folder_ / "w", "key", false).has(1)); });
  {
    Journal journal(folder_ / "w", "key", true);
    const arch::Weight a = weight_of(3, 7), b = weight_of(20, 2);
    journal.add(0, {{"a", &a}, {"b", &b}}, {}, {});
  }
  put_bytes(file("part-00000"), part);  // of an earlier run, with a seal that is right
  const std::string words = warnings_of([&] { EXPECT_FALSE(Journal(folder_ / "w", "key", false).has(0)); });
  EXPECT_NE(words.find("of another moment"), std::string::npos) << words;
}

// Numbers of another kind, or that fit nowhere, would become any others.
TEST_F(JournalFiles, NumbersThatAreNoneAreNotTaken) {
  SealedFolder sealed(folder_ / "w", {.quiet = true});
  const nlohmann::json kept = nlohmann::json::parse(sealed.read("work", "journal"));
  const auto has_first = [&](const char* place, const nlohmann::json& number) {
    nlohmann::json told = kept;
    told[nlohmann::json::json_pointer(place)] = number;
    sealed.write("work", "journal", told.dump());
    bool has = false;
    (void)warnings_of([&] { has = Journal(folder_ / "w", "key", false).has(0); });
    return has;
  };
  const nlohmann::json numbers[] = {1.3e20, -1e300, 4.5, -4, nullptr, "4"};
  for (const char* place :
       {"/parts/0/contents/0", "/parts/0/contents/1", "/parts/0/weights/0/bytes", "/parts/0/weights/0/shape/0"})
    for (const nlohmann::json& number : numbers) EXPECT_FALSE(has_first(place, number)) << place << number;
  EXPECT_FALSE(has_first("/parts/0/weights/0/shape/0", UINT64_MAX));
  for (const nlohmann::json& number : numbers) {
    EXPECT_TRUE(has_first("/values/behind", number)) << number;
    (void)warnings_of([&] { EXPECT_FALSE(Journal(folder_ / "w", "key", false).values(1)) << number; });
  }
}

// Lengths whose sum begins again at zero would put a weight behind the end of its part.
TEST_F(JournalFiles, LengthsBeyondThePartAreNotTaken) {
  {
    SealedFolder sealed(folder_ / "w", {.quiet = true});
    nlohmann::json told = nlohmann::json::parse(sealed.read("work", "journal"));
    nlohmann::json& weights = told["parts"][0]["weights"];
    weights = nlohmann::json::array();
    constexpr uint64_t kLong = uint64_t{1} << 50;
    for (int i = 0; i < 1 << 14; ++i)
      weights.push_back({{"name", "w" + std::to_string(i)}, {"shape", {1}}, {"bytes", kLong}});
    weights.push_back({{"name", "last"}, {"shape", {1}}, {"bytes", 4}});
    sealed.write("work", "journal", told.dump());
  }
  const std::string words = warnings_of([&] {
    const Journal again(folder_ / "w", "key", false);
    EXPECT_FALSE(again.has(0));
    EXPECT_TRUE(again.has(1));
  });
  EXPECT_NE(words.find("entry is broken"), std::string::npos) << words;
}

TEST_F(JournalFiles, AnotherRunIsRefused) {
  EXPECT_THROW(Journal(folder_ / "w", "other", false), Error);
  EXPECT_EQ(Journal(folder_ / "w", "other", true).end(), 0u);
}

// Parts behind one that is computed again stay where it comes out as it was.
TEST_F(JournalFiles, WhatComesOutOtherwiseTakesLaterPartsWithIt) {
  const arch::Weight a = weight_of(3, 1), b = weight_of(20, 2), other = weight_of(20, 3);
  Journal journal(folder_ / "w", "key", false);
  (void)warnings_of([&] { journal.discard(0, "test"); });
  journal.add(0, {{"a", &a}, {"b", &b}}, {}, {});
  EXPECT_TRUE(journal.has(1));
  (void)warnings_of([&] {
    journal.discard(0, "test");
    journal.add(0, {{"a", &a}, {"b", &other}}, {}, {});
  });
  EXPECT_FALSE(journal.has(1));
}

TEST_F(JournalFiles, AModelThatDiffersBetweenTheBlocksIsFound) {
  {
    Journal journal(folder_ / "m", "key", false, [] { return std::string("one"); });
    const arch::Weight a = weight_of(3, 1);
    journal.add(0, {{"a", &a}}, {}, {});
    EXPECT_NO_THROW(journal.require_same_model());
  }
  Journal journal(folder_ / "m", "key", false, [] { return std::string("two"); });
  EXPECT_TRUE(journal.has(0));
  try {
    journal.require_same_model();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::verify);
  }
  EXPECT_FALSE(fs::exists(folder_ / "m"));
}

// ---- whole runs

run::Engine& journal_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

class KeptRun : public testing::Test {
 protected:
  KeptRun() : model_(made_model()) {
    QuantizeOptions q;
    q.target = "q4_0";
    formats_ = choose_formats(model_, q, nullptr);
    for (int64_t i = 0; i < 5 * 8; ++i) text_.push_back((i * i * 7 + i * 3 + 5) % 40);
  }
  static arch::Model made_model() {
    const arch::FamilyRef family = test_library()->family("llama");
    return initialise(
        family,
        family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
        1);
  }
  ByLayersOptions options(const std::string& name, const std::string& strategy) const {
    ByLayersOptions o;
    o.method = parse_method(strategy);
    o.run = {.length = 8, .batch = 2};
    o.numbers.steps = 4;
    o.folder = folder_ / name;
    return o;
  }
  std::map<std::string, std::vector<uint8_t>> result(const ByLayersOptions& o) {
    ByLayers run(journal_engine(), model_, formats_, text_, o);
    EXPECT_TRUE(run.run());
    std::map<std::string, std::vector<uint8_t>> out;
    const arch::Model outline = run.outline();
    for (const arch::Parameter& p : model_.parameters) {
      const arch::Weight& w = outline.weights.at(p.name);
      const arch::Weight whole = w.bytes.size() > 0 ? w : run.weight(p);
      out[p.name] = {whole.bytes.begin(), whole.bytes.end()};
    }
    losses_ = run.losses();
    EXPECT_EQ(run.report().size(), formats_.size());
    return out;
  }
  // A run that was stopped behind so many parts.
  void stop_behind(const ByLayersOptions& o, int parts) {
    ByLayers run(journal_engine(), model_, formats_, text_, o);
    int done = 0;
    EXPECT_FALSE(run.run({}, [&] { return ++done == parts; }));
  }
  fs::path own(const std::string& name) const { return folder_ / name / ("user-" + std::to_string(::geteuid())); }

  TestFolder folder_;
  const arch::Model model_;
  std::map<std::string, FormatRef> formats_;
  std::vector<text::TokenId> text_;
  std::vector<float> losses_;
};

// Some bytes of each file that a stopped run leaves, and each file gone: the same model, and a warning that names what
// was computed again. "gptaq" carries the unrounded values, too; "smoothquant" changes weights that it does not round.
TEST_F(KeptRun, DamageChangesNothingButTheTime) {
  for (const char* strategy : {"imatrix", "gptaq", "smoothquant,rtn"}) {
    const auto want = result(options("whole", strategy));
    fs::remove_all(folder_ / "whole");
    const std::vector<float> losses = losses_;
    stop_behind(options("kept", strategy), 2);
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(own("kept")))
      if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder_ / "kept"));
    ASSERT_GE(files.size(), 5u) << "key, journal, two parts, values";
    size_t values = 0;
    for (const fs::path& file : files) {
      values += file.extension() == ".values";
      const std::string bytes = read_file(folder_ / "kept" / file);
      for (int form = 0; form < 3; ++form) {
        fs::remove_all(folder_ / "w");
        fs::copy(folder_ / "kept", folder_ / "w", fs::copy_options::recursive);
        std::string changed = bytes;
        changed[form == 0 ? 0 : bytes.size() / 2] ^= 8;
        put_bytes(folder_ / "w" / file, changed);
        if (form == 2) fs::remove(folder_ / "w" / file);
        const std::string words = warnings_of([&] { EXPECT_EQ(result(options("w", strategy)), want) << file << form; });
        EXPECT_EQ(losses_, losses) << file;
        EXPECT_NE(words.find("warning"), std::string::npos) << file << form;
      }
    }
    EXPECT_GT(values, 0u);
    fs::remove_all(folder_ / "kept");
  }
}

// A journal with a right seal that another version might have written: every value of it missing, and of other kinds.
TEST_F(KeptRun, JournalsOfOtherContents) {
  const auto want = result(options("whole", "imatrix"));
  stop_behind(options("kept", "imatrix"), 2);
  nlohmann::json journal;
  {
    SealedFolder files(folder_ / "kept");
    journal = nlohmann::json::parse(files.map("work", "journal").text());
  }
  std::vector<nlohmann::json> forms;
  const nlohmann::json flat = journal.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (pointer == "/key") continue;
    const nlohmann::json::json_pointer at(pointer);
    nlohmann::json gone = journal;
    nlohmann::json& above = gone.at(at.parent_pointer());
    if (above.is_object())
      above.erase(at.back());
    else
      above.erase(std::stoul(at.back()));
    forms.push_back(std::move(gone));
    for (const nlohmann::json& other : {nlohmann::json("\n"), nlohmann::json(3), nlohmann::json(-1), nlohmann::json(),
                                        nlohmann::json::array(), nlohmann::json(int64_t{1} << 62)}) {
      forms.push_back(journal);
      forms.back().at(at) = other;
    }
  }
  forms.push_back(journal);
  forms.back()["parts"].push_back(journal["parts"][0]);
  ASSERT_GT(forms.size(), 200u);
  size_t begun = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    fs::remove_all(folder_ / "w");
    fs::copy(folder_ / "kept", folder_ / "w", fs::copy_options::recursive);
    (void)warnings_of([&] {
      SealedFolder(folder_ / "w").write("work", "journal", forms[i].dump());
      if (i % (forms.size() / 12) == 0) {
        EXPECT_EQ(result(options("w", "imatrix")), want) << forms[i].dump();
      } else {
        const ByLayers run(journal_engine(), model_, formats_, text_, options("w", "imatrix"));
        (void)run.report();
        (void)run.outline();
      }
      ++begun;
    });
  }
  EXPECT_EQ(begun, forms.size());
}

// What is kept is of the very model: another one that is the same in the blocks that are looked at first is found
// before anything is written.
TEST_F(KeptRun, AModelThatIsAlikeAtTheStart) {
  ByLayersOptions o = options("w", "imatrix");
  o.identity = std::make_shared<arch::ModelIdentity>(model_);
  stop_behind(o, 2);
  const std::string sampled = o.identity->sampled();
  arch::Model other = model_;
  const auto change = [&](const std::string& name, size_t number) {
    other = model_;
    arch::Weight& w = other.weights.at(name);
    std::vector<float> values(w.f32().begin(), w.f32().end());
    values[number] += 1;
    w = arch::f32_weight(w.type.shape, values);
    o.identity = std::make_shared<arch::ModelIdentity>(other);
    return o.identity->sampled() == sampled;
  };
  bool is_found = false;
  for (const auto& [name, w] : model_.weights)
    for (size_t number = 0; number < w.f32().size() && !is_found; number += 97) is_found = change(name, number);
  ASSERT_TRUE(is_found) << "all numbers lie in blocks";
  try {
    ByLayers run(journal_engine(), other, formats_, text_, o);
    run.run();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::verify) << error.what();
  }
  EXPECT_FALSE(fs::exists(folder_ / "w"));
}

}  // namespace
}  // namespace lumen::model::compress
