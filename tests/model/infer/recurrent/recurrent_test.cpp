// needs: none. Which states are recurrent, what a step must do for them, and which of their marks are kept.
#include "model/infer/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/elaborate/elaborate.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

std::shared_ptr<const std::string> bytes_of(int64_t length) {
  return std::make_shared<const std::string>(std::to_string(length));
}

TEST(StateMarks, GoBackToTheLastOneBefore) {
  StateMarks marks;
  EXPECT_EQ(marks.before(100), nullptr);
  for (const int64_t at : {3, 8, 20}) marks.add(at, bytes_of(at));
  EXPECT_EQ(marks.before(2), nullptr);
  EXPECT_EQ(marks.before(3)->length, 3);
  EXPECT_EQ(marks.before(19)->length, 8);
  EXPECT_EQ(*marks.before(1000)->bytes, "20");
  EXPECT_TRUE(marks.has(8));
  marks.drop_behind(8);
  EXPECT_EQ(marks.before(1000)->length, 8);
  EXPECT_FALSE(marks.has(20));
  marks.keep_only(3);
  EXPECT_EQ(marks.before(1000)->length, 3);
}

TEST(StateMarks, AreSpreadOverTheSequence) {
  StateMarks marks;
  for (int64_t at = 1; at <= 1000; ++at) marks.add(at, bytes_of(at));
  ASSERT_EQ(marks.all().size(), StateMarks::kMost);
  EXPECT_EQ(marks.all().back().length, 1000);
  EXPECT_EQ(marks.all()[StateMarks::kMost - 2].length, 999);
  // No part between marks is much longer than the others.
  int64_t before = 0;
  for (const StateMarks::Mark& m : marks.all()) {
    EXPECT_LE(m.length - before, 500);
    before = m.length;
  }
}

// A family of one recurrent layer: a sum of embeddings, which fades. `step` is its step's signature and body.
arch::LibraryRef library_with(const std::string& step) {
  const std::string text = R"(
model fading(cfg) : gguf "fading", hf "FadingForCausalLM" {
  config {
    vocab   : i32 = 11
    hidden  : i32 = 4
    context : i32 = 32
  }
  param embed : f32[cfg.vocab, cfg.hidden], gguf "token_embd.weight", role embedding, init normal 1
  fn forward(tokens: i32[B, T]) -> f32[B, T, cfg.vocab] = linear(embed[tokens], embed)
)" + step +
                           "\n}\nfn fade_next(s: f32[B, D], x: f32[B, D], real: i32[B]) -> f32[B, D], f32[B, D] {\n"
                           "  let next = 0.5 * s + x\n"
                           "  let kept = select(reshape(real, [B, 1]) > 0, next, s)\n"
                           "  return kept, kept\n}\n";
  const auto library = arch::Library::builtin();
  library->add_model_text(std::make_shared<Source>(Source{"fading.lum", text}));
  return library;
}

constexpr const char* kStep = R"(
  fn step(tokens: i32[B, T], position: i32[], count: i32[], rows: i32[R], sums: state f32[1, B, cfg.hidden]) -> f32[R, cfg.vocab] {
    let real = real_tokens(tokens, broadcast(count, [B]))
    let (last, y) = scan(fade_next, [sums[0, :, :]], [embed[tokens], real], axis = 1)
    sums = update(sums, reshape(last, [1, B, cfg.hidden]), 0, 0, 0)
    return linear(gather(reshape(y, [B * T, cfg.hidden]), rows), embed)
  })";

arch::Model model_of(const arch::LibraryRef& library) {
  return initialise(library->family("fading"), library->family("fading")->config("", {}), 1);
}

std::string refusal(const std::string& step) {
  const arch::LibraryRef library = library_with(step);
  const arch::Model m = model_of(library);
  const LoadedModel loaded(engine(), m);
  try {
    Session s(loaded, {.exact = true});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Recurrent, PaddingStaysOut) {
  const arch::LibraryRef library = library_with(kStep);
  const arch::Model m = model_of(library);
  const LoadedModel loaded(engine(), m);
  const std::vector<text::TokenId> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  Session whole(loaded, {.chunk = 16, .exact = true}), single(loaded, {.chunk = 1, .exact = true});
  const auto wanted = single.feed(tokens);
  const std::vector<float> want(wanted.begin(), wanted.end());
  const auto got = whole.feed(tokens);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  const text::TokenId next = 7;
  const auto more = single.feed({&next, 1});
  const std::vector<float> behind(more.begin(), more.end());
  const auto too = whole.feed({&next, 1});
  for (size_t i = 0; i < behind.size(); ++i) EXPECT_NEAR(too[i], behind[i], 1e-5);
}

TEST(Recurrent, AStepWithoutTheCountIsRefused) {
  EXPECT_EQ(refusal(kStep), "");
  const std::string without =
      replaced(replaced(kStep, "count: i32[], ", ""), "broadcast(count, [B])", "broadcast(99, [B])");
  EXPECT_NE(refusal(without).find("does not take 'count'"), std::string::npos) << refusal(without);
  EXPECT_NE(refusal(without).find("'sums' is a recurrent state"), std::string::npos);
  const std::string unused = replaced(kStep, "broadcast(count, [B])", "broadcast(99, [B])");
  EXPECT_NE(refusal(unused).find("does not depend on 'count'"), std::string::npos) << refusal(unused);
}

// A cache of positions needs no count: what padding leaves there is overwritten.
TEST(Recurrent, CachesOfPositionsAreNone) {
  const arch::Model m = tiny_model();
  EXPECT_TRUE(recurrent_states(m.family->function("step", m.config)).empty());
  EXPECT_TRUE(recurrent_states(m.family->function("step_many", m.config)).empty());
}

}  // namespace
}  // namespace lumen::model::infer
