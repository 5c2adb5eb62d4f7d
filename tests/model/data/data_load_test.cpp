// needs: none. Files as tokenized examples: what is counted, what is kept, and what the cache gives back.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "model/data/examples/load.h"
#include "tests/model/data/data_case.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::data {
namespace {

using testing::HasSubstr;

class DataLoad : public testing::Test {
 protected:
  ReadOptions options() const {
    ReadOptions o;
    o.chat = templates::choose_template("chatml", tokenizer_);
    return o;
  }
  LoadedExamples load(const std::filesystem::path& file, const ReadOptions& o) const {
    return load_examples(data_files(file), tokenizer_, o);
  }
  std::string chat(int i) const {
    return fmt::format(
        "{{\"messages\":[{{\"role\":\"user\",\"content\":\"q{}\"}},{{\"role\":\"assistant\",\"content\":"
        "\"a{}\"}}]}}\n",
        i, i);
  }
  DataFolder folder_;
  text::Tokenizer tokenizer_ = text::Tokenizer::load(text::fixture("qwen3-0.6b.json"));
};

TEST_F(DataLoad, EveryRowIsCounted) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += chat(i);
  text += "{\"messages\": 1}\nno json\n{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}\n{\"text\":\"prose\"}\n";
  const LoadedExamples loaded = load(folder_.put("a.jsonl", text), options());
  EXPECT_EQ(loaded.store->examples().size(), 701u);
  EXPECT_EQ(loaded.store->examples()[699].line, 700u);
  const RowReport& report = loaded.store->report();
  EXPECT_EQ(report.kept(), 701u);
  EXPECT_EQ(report.dropped(), 3u);
  EXPECT_THAT(report.table(), HasSubstr("a.jsonl:701"));
  EXPECT_THAT(report.table(), HasSubstr("of another kind than the rows before"));
  EXPECT_THAT(report.table(), HasSubstr("no valid JSON"));
  EXPECT_EQ(RowReport::from_json(report.to_json(), "t").table(), report.table());
}

// A template that takes too long for a row ends the reading there: the next row would take as long.
TEST_F(DataLoad, ATemplateWithoutEndIsNamed) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += chat(i);
  ReadOptions o = options();
  o.chat.text =
      "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}"
      "{% if m.content == 'q7' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
      "{% endfor %}{% endif %}{% endfor %}";
  const std::filesystem::path file = folder_.put("a.jsonl", text);
  const auto begin = std::chrono::steady_clock::now();
  RowReport report;
  const std::function<void()> readings[] = {[&] { load(file, o); }, [&] { documents_of_rows({file}, o, &report); }};
  for (const auto& reading : readings) {
    try {
      reading();
      FAIL();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::StartsWith(file.string() + ":8: "));
      EXPECT_THAT(e.what(), HasSubstr("the template takes "));
      EXPECT_THAT(e.hint(), HasSubstr("--chat-template"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_F(DataLoad, NothingUsableIsAnError) {
  try {
    load(folder_.put("a.jsonl", "{\"a\":1}\n"), options());
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("no row can be used"));
    EXPECT_THAT(e.what(), HasSubstr("a.jsonl:1: a"));
  }
  EXPECT_THROW(load(folder_.put("b.jsonl", ""), options()), Error);
  EXPECT_THROW(data_files(folder_.path() / "missing"), Error);
  ReadOptions texts = options();
  texts.form = "texts";
  EXPECT_THROW(load(folder_.put("c.jsonl", chat(1)), texts), Error);
  texts.form = "novels";
  EXPECT_THROW(load(folder_.path() / "c.jsonl", texts), Error);
}

TEST_F(DataLoad, FoldersAndKinds) {
  std::filesystem::create_directories(folder_.path() / "d/e");
  folder_.put("d/b.jsonl", chat(1));
  folder_.put("d/e/a.csv", "question,answer\nx,y\n");
  folder_.put("d/notes.md", "Prose.\n\n### Q\nx\n### A\ny\n");
  folder_.put("d/picture.png", "x");
  const auto files = data_files(folder_.path() / "d");
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(kind_of_rows(files, {}), Example::Kind::chat);
  EXPECT_EQ(load_examples(files, tokenizer_, options()).store->examples().size(), 4u);
  RowReport report;
  const auto texts =
      documents_of_rows({folder_.put("some.jsonl", "{\"text\":\"x\"}\nbroken\n{\"other\":1}\n")}, options(), &report);
  EXPECT_EQ(texts, std::vector<std::string>{"x"});
  EXPECT_EQ(report.dropped(), 2u);
  EXPECT_NE(report.table().find("some.jsonl:2"), std::string::npos);
  EXPECT_NE(report.table().find("some.jsonl:3"), std::string::npos);
  // A row that the template writes in part gives nothing.
  ReadOptions strict = options();
  strict.chat.text =
      "{% for m in messages %}{% if m.content == 'b' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor "
      "%}";
  RowReport pairs;
  const auto pair = folder_.put("pair.jsonl", R"({"prompt":"q","chosen":"a","rejected":"b"})");
  EXPECT_TRUE(documents_of_rows({pair}, strict, &pairs).empty());
  EXPECT_EQ(pairs.dropped(), 1u);
  EXPECT_EQ(kind_of_rows({folder_.put("t.jsonl", "{\"text\":\"x\"}\n")}, {}), Example::Kind::text);
  EXPECT_EQ(kind_of_rows({folder_.put("p.jsonl", R"({"prompt":"q","chosen":"a","rejected":"b"})")}, {}),
            Example::Kind::pair);
  EXPECT_FALSE(kind_of_rows({folder_.put("x.jsonl", "broken\n")}, {}));
}

bool same(const ExampleStore& a, const ExampleStore& b) {
  if (a.hash() != b.hash() || a.examples().size() != b.examples().size() || a.token_count() != b.token_count())
    return false;
  for (size_t i = 0; i < a.examples().size(); ++i) {
    const auto x = a.tokens(a.examples()[i]), y = b.tokens(b.examples()[i]);
    if (!std::equal(x.begin(), x.end(), y.begin(), y.end()) || a.examples()[i].line != b.examples()[i].line ||
        a.examples()[i].learned != b.examples()[i].learned)
      return false;
  }
  return a.report().table() == b.report().table() && a.largest() == b.largest();
}

TEST_F(DataLoad, TheCacheGivesBackWhatWasMadeAndNothingElse) {
  std::string text = "broken\n";
  for (int i = 0; i < 50; ++i) text += chat(i);
  const auto file = folder_.put("a.jsonl", text);
  ReadOptions o = options();
  const LoadedExamples plain = load(file, o);
  o.cache = std::make_shared<SealedFolder>(folder_.path() / "cache");
  const LoadedExamples first = load(file, o), second = load(file, o);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(second.from_cache);
  EXPECT_TRUE(same(*plain.store, *first.store));
  EXPECT_TRUE(same(*first.store, *second.store));
  ReadOptions other = o;
  other.train_on = TrainOn::all;
  EXPECT_FALSE(load(file, other).from_cache);
  other = o;
  other.chat.text += "{# another one #}";
  EXPECT_FALSE(load(file, other).from_cache);
  folder_.put("a.jsonl", text + chat(50));
  EXPECT_FALSE(load(file, o).from_cache);

  // Wherever the file lies, whatever it is called, and when it was written; rows are told of by the name it has now.
  folder_.put("a.jsonl", text);
  std::filesystem::create_directories(folder_.path() / "elsewhere");
  const auto moved = folder_.path() / "elsewhere/b.jsonl";
  std::filesystem::rename(file, moved);
  std::filesystem::last_write_time(moved, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const LoadedExamples there = load(moved, o);
  EXPECT_TRUE(there.from_cache);
  EXPECT_THAT(there.store->report().table(), HasSubstr("b.jsonl:1"));
  EXPECT_THAT(first.store->report().table(), HasSubstr("a.jsonl:1"));
}

// What is not what was written is told by name, and never used.
TEST_F(DataLoad, ADamagedCacheIsMadeAgainWithAWarning) {
  std::string text = "broken\n";
  for (int i = 0; i < 50; ++i) text += chat(i);
  const auto file = folder_.put("a.jsonl", text);
  ReadOptions o = options();
  o.cache = std::make_shared<SealedFolder>(folder_.path() / "cache");
  const LoadedExamples plain = load(file, o);
  const std::filesystem::path tokens = o.cache->path() / "tokens";
  const auto cached = std::filesystem::directory_iterator(tokens)->path();
  EXPECT_EQ(std::filesystem::status(tokens).permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(std::filesystem::status(cached).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string bytes = read_file(cached);
  std::vector<std::string> forms = {bytes.substr(0, bytes.size() - 7), bytes.substr(0, 10), bytes + "x", bytes + bytes};
  for (size_t at = 0; at < bytes.size(); at += bytes.size() / 40) {
    forms.push_back(bytes);
    forms.back()[at] = static_cast<char>(forms.back()[at] ^ 1);
  }
  // Another token in the place of each, with everything that can be computed without the secret set right.
  forms.push_back(bytes);
  for (size_t at = 0; at < plain.store->token_count() * 4; at += 4) forms.back()[at] = 5;
  for (const std::string& form : forms) {
    {
      std::ofstream(cached, std::ios::binary | std::ios::trunc) << form;
    }
    testing::internal::CaptureStderr();
    const LoadedExamples again = load(file, o);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(cached.string()));
    EXPECT_FALSE(again.from_cache);
    EXPECT_TRUE(same(*again.store, *plain.store));
    EXPECT_TRUE(load(file, o).from_cache);
  }
}

// Whatever is wrong with the folder: one warning, and the same examples.
TEST_F(DataLoad, WithoutAUsableCacheTheDataAreReadAllTheSame) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += chat(i);
  const auto file = folder_.put("a.jsonl", text);
  const LoadedExamples plain = load(file, options());
  folder_.put("file", "");
  for (const auto& place :
       {folder_.path() / "file/below", folder_.path() / "file", std::filesystem::path("/proc/none")}) {
    testing::internal::CaptureStderr();
    ReadOptions o = options();
    o.cache = std::make_shared<SealedFolder>(place);
    for (int time = 0; time < 2; ++time) {
      const LoadedExamples loaded = load(file, o);
      EXPECT_FALSE(loaded.from_cache);
      EXPECT_TRUE(same(*loaded.store, *plain.store)) << place;
    }
    o.cache = std::make_shared<SealedFolder>(place);
    const std::string words = testing::internal::GetCapturedStderr();
    EXPECT_THAT(words, HasSubstr("made again at every start"));
    EXPECT_EQ(words.find("warning"), words.rfind("warning")) << words;
  }
}

// Of real data sets: columns that are known, and columns that are named.
TEST_F(DataLoad, RealRows) {
  const auto folder = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/data";
  const LoadedExamples english = load(folder / "gsm8k.jsonl", options());
  EXPECT_EQ(english.store->examples().size(), 6u);
  EXPECT_EQ(english.store->report().dropped(), 0u);
  EXPECT_THROW(load(folder / "korean_chatbot.csv", options()), Error);  // Q and A say nothing
  ReadOptions named = options();
  named.columns = read_columns({"prompt=Q", "completion=A"});
  const LoadedExamples korean = load(folder / "korean_chatbot.csv", named);
  EXPECT_EQ(korean.store->form(), RowForm::sequences);  // its "label" is another one
  ASSERT_EQ(korean.store->examples().size(), 12u);
  std::string answer;
  const StoredExample& first = korean.store->examples()[0];
  for (const uint32_t token : korean.store->tokens(first))
    if (token >= ExampleStore::kLearned)
      answer += tokenizer_.bytes(static_cast<text::TokenId>(token & ~ExampleStore::kLearned));
  EXPECT_EQ(answer, "하루가 또 가네요.<|im_end|>");
}

TEST_F(DataLoad, PairsAndLabels) {
  const LoadedExamples pairs =
      load(folder_.put("p.jsonl", "{\"prompt\":\"q\",\"chosen\":\"good\",\"rejected\":\"bad\"}\n"), options());
  EXPECT_EQ(pairs.store->form(), RowForm::pairs);
  ASSERT_EQ(pairs.store->examples().size(), 2u);
  const LoadedExamples labels =
      load(folder_.put("l.jsonl",
                       "{\"prompt\":\"q\",\"completion\":\"a\",\"label\":true}\n{\"prompt\":\"q\",\"completion\":"
                       "\"b\",\"label\":false}\n"),
           options());
  EXPECT_EQ(labels.store->form(), RowForm::labels);
  EXPECT_EQ(labels.store->examples()[0].flags, StoredExample::kWanted);
  EXPECT_EQ(labels.store->examples()[1].flags, 0u);
}

TEST(DataTemplate, ByNameByFileOrTheModelsOwn) {
  const text::Tokenizer plain = text::Tokenizer::characters("abc");
  EXPECT_EQ(templates::choose_template("", plain).name, "plain");
  EXPECT_EQ(templates::choose_template("", plain.with_chat_template("own")).text, "own");
  EXPECT_EQ(templates::choose_template("chatml", plain.with_chat_template("own")).name, "chatml");
  EXPECT_THROW(templates::choose_template("nothing", plain), Error);
}

}  // namespace
}  // namespace lumen::model::data
