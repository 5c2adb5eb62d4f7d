// needs: none. Towers, and models that read their rows, against transformers: rows of pictures, positions, logits and
// the most likely tokens of a prompt with two pictures of different sizes, in one step, in pieces, and among other
// sequences. The fixtures and the script that makes them: pictures_reference.py.
#include "model/infer/tower/tower.h"

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/image/image.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/sequence_batch.h"
#include "model/infer/session/seen_rows.h"
#include "model/infer/session/session_many.h"
#include "model/infer/tower/picture_prompt.h"
#include "model/text/unicode/unicode.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

const std::filesystem::path kPictures = kFixtures / "pictures";
constexpr double kRowBound = 2e-5;  // of the range of all rows

std::vector<std::string> cases() {
  std::vector<std::string> names = names_in(kPictures);
  std::erase(names, "shown");
  return names;
}

// A model of the fixtures, its tower, and the case's pictures and prompt.
struct Seeing {
  explicit Seeing(const std::string& name)
      : file(kPictures / name / "expected.safetensors", test_library()->formats()),
        model(arch::read_hf(test_library(), kPictures / name)),
        loaded(engine(), model),
        tower(engine(), *arch::read_tower(test_library(), kPictures / name), true) {
    loaded.read_pictures();
    for (const char* shown : {"wide.png", "tall.webp"}) pictures.push_back(see(shown));
    prompt = encode_with_pictures(*model.tokenizer, "What is " + tower.text().mark + " and " + tower.text().mark + "? ",
                                  {.add_special = true, .parse_special = true}, tower.text(), pictures);
    logits = numbers<float>(file.get("logits"));
    const auto [low, high] = std::ranges::minmax_element(logits);
    range = double{*high} - *low;
  }
  PictureRef see(const char* shown) {
    return tower.see(image::read_image(read_file(kPictures / "shown" / shown), shown), shown, loaded.pictures(),
                     picture_width(model));
  }
  // The largest difference of the logits of one position, in units of their range.
  double off(std::span<const float> got, int64_t position) const {
    double most = 0;
    for (size_t v = 0; v < got.size(); ++v)
      most = std::max(most, std::abs(double{got[v]} - logits[position * got.size() + v]));
    return std::isfinite(most) ? most / range : INFINITY;
  }
  SessionOptions options(int64_t chunk) const { return {.context = 512, .chunk = chunk, .exact = true}; }

  file::SafetensorsFile file;
  arch::Model model;
  LoadedModel loaded;
  Tower tower;
  std::vector<PictureRef> pictures;
  std::vector<text::TokenId> prompt;
  std::vector<float> logits;
  double range = 0;
};

class Towers : public testing::TestWithParam<std::string> {};

TEST_P(Towers, RowsAreThoseOfTransformers) {
  const Seeing s(GetParam());
  for (size_t n = 0; n < s.pictures.size(); ++n) {
    const auto want = numbers<float>(s.file.get(fmt::format("rows.{}", n)));
    ASSERT_EQ(s.pictures[n]->rows.size(), want.size());
    const auto [low, high] = std::ranges::minmax_element(want);
    double most = 0;
    for (size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(double{want[i]} - s.pictures[n]->rows[i]));
    EXPECT_LT(most, kRowBound * (*high - *low)) << "picture " << n;
  }
}

TEST_P(Towers, PromptsHavePicturesAtTheirPlaces) {
  const Seeing s(GetParam());
  const auto want = numbers<int32_t>(s.file.get("tokens"));
  ASSERT_EQ(s.prompt.size(), want.size());
  const auto place = s.model.tokenizer->encode(s.tower.text().place, {.add_special = false, .parse_special = true})[0];
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(is_picture(s.prompt[i]) ? place : s.prompt[i], want[i]) << i;
  PicturePositions places;
  places.extend(s.loaded.pictures(), s.prompt, positions_by_grid(s.model));
  const auto at = numbers<int32_t>(s.file.get("positions"));
  for (size_t axis = 0; axis < 3; ++axis)
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(places.at(i)[axis], at[axis * want.size() + i]) << "axis " << axis << ", token " << i;
  EXPECT_THROW(encode_with_pictures(*s.model.tokenizer, s.tower.text().mark, {.parse_special = true}, s.tower.text(),
                                    s.pictures),
               Error);
}

TEST_P(Towers, LogitsAreThoseOfTransformers) {
  const Seeing s(GetParam());
  for (const int64_t chunk : {64, 16, 7}) {
    Session session(s.loaded, s.options(chunk));
    const std::span<const text::TokenId> prompt = s.prompt;
    int64_t done = 0;
    for (const int64_t count : {int64_t{12}, int64_t{1}, std::ssize(prompt) - 13}) {
      const auto got = session.feed(prompt.subspan(done, count));
      done += count;
      EXPECT_LT(s.off(got, done - 1), kLogitBound) << "chunks of " << chunk << ", position " << done - 1;
    }
    // Back into the first picture, and again.
    session.rewind(20);
    EXPECT_LT(s.off(session.feed(prompt.subspan(20)), std::ssize(prompt) - 1), kLogitBound);
  }
  Session session(s.loaded, s.options(64));
  const auto rows = session.feed_all(s.prompt);
  const int64_t vocab = s.model.integer("vocab");
  for (int64_t i = 0; i < std::ssize(s.prompt); ++i)
    EXPECT_LT(s.off(rows.subspan(i * vocab, vocab), i), kLogitBound) << "position " << i;
}

TEST_P(Towers, TheMostLikelyTokensAreThoseOfTransformers) {
  const Seeing s(GetParam());
  const auto greedy = numbers<int32_t>(s.file.get("greedy"));
  Session session(s.loaded, s.options(32));
  std::vector<float> row(session.vocabulary());
  std::ranges::copy(session.feed(s.prompt), row.begin());
  for (const int32_t want : greedy) {
    const text::TokenId got = std::ranges::max_element(row) - row.begin();
    EXPECT_EQ(got, want);
    std::ranges::copy(session.feed({&got, 1}), row.begin());
  }
}

TEST_P(Towers, ManySequencesDoNotMixPicturesUp) {
  Seeing s(GetParam());
  const auto last = std::ssize(s.prompt) - 1;
  // The same text with the pictures the other way round, and text alone.
  std::vector<text::TokenId> other = s.prompt;
  const int64_t rows = std::ssize(s.pictures[0]->ids);
  if (std::ssize(s.pictures[1]->ids) == rows)
    for (text::TokenId& id : other)
      if (const auto row = s.loaded.pictures().find(id))
        id = s.pictures[row->picture == s.pictures[0] ? 1 : 0]->ids[row->number];
  const std::vector<text::TokenId> text = {5, 6, 7, 8};
  ManySession many(s.loaded, s.options(16), {.longest = 128, .kept = 1});
  const int a = many.open(), b = many.open(), c = many.open();
  const std::span<const text::TokenId> prompt = s.prompt;
  (void)many.feed(std::vector<ManySession::Part>{{a, prompt.first(14)}});
  const auto got = many.feed(std::vector<ManySession::Part>{{b, other}, {c, text}, {a, prompt.subspan(14)}});
  EXPECT_LT(s.off(got[2], last), kLogitBound);
  EXPECT_GT(s.off(got[0], last), 10 * kLogitBound);
  // Shared up to the middle of the first picture; and text as without pictures.
  const int d = many.open();
  EXPECT_EQ(many.share(a, d, 20), 20);
  EXPECT_LT(s.off(many.feed(std::vector<ManySession::Part>{{d, prompt.subspan(20)}})[0], last), kLogitBound);
  const LoadedModel blind(engine(), s.model);
  Session plain(blind, s.options(16));
  const auto alone = plain.feed(text);
  for (size_t v = 0; v < alone.size(); ++v) EXPECT_NEAR(got[1][v], alone[v], 1e-4 * s.range);
}

TEST_P(Towers, GeneratorsAndBatchesAgree) {
  Seeing s(GetParam());
  const auto greedy = numbers<int32_t>(s.file.get("greedy"));
  const std::string want = text::utf8_repair(s.model.tokenizer->decode(greedy));
  SamplerOptions sampling;
  sampling.temperature = 0;
  GenerateOptions generate;
  generate.predict = std::ssize(greedy);
  Generator generator(s.loaded, s.options(32), sampling, generate, std::make_unique<LookUpDraft>());
  const auto quiet = [](std::string_view) {};
  const auto on = [] { return true; };
  EXPECT_EQ(generator.answer(s.prompt, true, quiet, on).text, want);
  // Another picture at the same place is not the one that was cached.
  const auto again = generator.answer(s.prompt, true, quiet, on);
  EXPECT_EQ(again.text, want);
  EXPECT_EQ(again.read, 1);
  SequenceBatch batch(s.loaded, s.options(32), {.longest = 128, .kept = 2}, 2);
  std::vector<ManyAnswer> answers;
  for (int i = 0; i < 2; ++i) {
    SequenceOrder order;
    order.prompt = s.prompt;
    order.pictures = s.pictures;
    order.sampling = sampling;
    order.generate = generate;
    order.done = [&](const ManyAnswer& answer) { answers.push_back(answer); };
    batch.add(order);
    while (batch.step()) {
    }
  }
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].text, want);
  EXPECT_EQ(answers[1].text, want);
  EXPECT_EQ(answers[1].shared, std::ssize(s.prompt) - 1);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Towers, testing::ValuesIn(cases()), [](const auto& one) { return one.param; });

TEST(Tower, FewNumbersOfPatchesAreCompiled) {
  EXPECT_EQ(patches_of_step(4, 4), 64);
  EXPECT_EQ(patches_of_step(68, 4), 80);
  EXPECT_EQ(patches_of_step(1024, 4), 1024);
  EXPECT_EQ(patches_of_step(1028, 4), 1280);
}

// They are parts of models: no file is read by them alone.
TEST(Tower, FamiliesAreFoundByNameAndByTheirModels) {
  const auto& library = *test_library();
  const arch::FamilyRef tower = arch::tower_of(library, "Qwen2VLForConditionalGeneration");
  ASSERT_TRUE(tower);
  EXPECT_EQ(library.family(tower->name())->name(), tower->name());
  EXPECT_EQ(std::ranges::count(library.family_names(), tower->name()), 0);
  EXPECT_FALSE(arch::tower_of(library, "LlamaForCausalLM"));
}

TEST(Tower, OtherModelsReadNoPictures) {
  EXPECT_FALSE(arch::read_tower(test_library(), kFamilies / "llama"));
  const arch::Model blind = tiny_model();
  LoadedModel loaded(engine(), blind);
  EXPECT_THROW(loaded.read_pictures(), Error);
  Seeing s(cases().front());
  EXPECT_THROW(s.tower.see(image::read_image(read_file(kPictures / "shown" / "grey.png"), "grey.png"), "grey.png",
                           s.loaded.pictures(), 7),
               Error);
}

TEST(Tower, AShiftKeepsPicturesWhole) {
  Seeing s(cases().front());
  SamplerOptions sampling;
  sampling.temperature = 0;
  GenerateOptions generate;
  generate.predict = 40;
  generate.shift = true;
  generate.keep = 10;  // one row of the first picture
  Generator generator(s.loaded, {.context = std::ssize(s.prompt) + 6, .chunk = 32, .exact = true}, sampling, generate);
  const auto out = generator.answer(s.prompt, true, [](std::string_view) {}, [] { return true; });
  EXPECT_GT(out.made, 6);
  int64_t rows = 0;
  for (const text::TokenId id : generator.tokens()) rows += is_picture(id);
  EXPECT_EQ(rows % std::ssize(s.pictures[0]->ids), 0);
}

}  // namespace
}  // namespace lumen::model::infer
