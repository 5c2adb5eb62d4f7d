// needs: none. What a client gets does not depend on others; queues, times and clients that leave have their bounds.
#include "model/serve/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "model/infer/generate/generate.h"
#include "tests/model/tiny.h"

namespace lumen::model::serve {
namespace {

arch::Model served_tiny() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

SchedulerOptions small_scheduler() {
  SchedulerOptions options;
  options.session.exact = true;
  options.session.context = 128;
  options.session.chunk = 4;
  options.session.page = 4;
  options.parallel = 4;
  options.kept = 2;
  options.queue = 32;
  return options;
}

GenerationRequest asked(const arch::Model& m, const std::string& prompt, uint32_t seed, int64_t n = 1) {
  GenerationRequest request;
  request.prompts = {m.tokenizer->encode(prompt)};
  request.echoed = {prompt};
  request.n = n;
  request.sampling.temperature = 0.9;
  request.sampling.seed = seed;
  request.generate.predict = 6;
  return request;
}

// The scheduler's thread, which ends with this.
class RunningScheduler {
 public:
  explicit RunningScheduler(Scheduler& scheduler)
      : scheduler_(scheduler), thread_([this] { scheduler_.run([this] { return !stop_; }); }) {}
  ~RunningScheduler() { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void wait() { thread_.join(); }

 private:
  Scheduler& scheduler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::vector<std::string> outputs_of(Answering& answering, int64_t count) {
  std::vector<std::string> outputs(count);
  for (int64_t ended = 0; ended < count;) {
    const auto delta = answering.next(20);
    if (!delta) {
      ADD_FAILURE() << "nothing comes";
      break;
    }
    outputs.at(delta->index) += delta->text;
    ended += delta->ended ? 1 : 0;
  }
  return outputs;
}

std::string alone_in_session(const infer::LoadedModel& loaded, const GenerationRequest& request, uint32_t seed) {
  infer::SamplerOptions sampling = request.sampling;
  sampling.seed = seed;
  infer::Generator g(loaded, {.context = 16, .exact = true}, sampling, request.generate);
  return g.answer(request.prompts[0], true, [](std::string_view) {}, [] { return true; }).text;
}

TEST(Scheduler, TheSameOutputsAloneAndAmongOthers) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  Scheduler scheduler(loaded, small_scheduler());
  EXPECT_EQ(scheduler.longest(), 16);
  const RunningScheduler running(scheduler);
  const std::vector<std::string> prompts = {"abc", "abcabcabc", "j", "abcab h", "feed", "abca", "hid bab", "ab", "cab"};
  std::vector<std::shared_ptr<Answering>> all;
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) requests.push_back(asked(m, prompts[i], uint32_t(7 * i), i == 3 ? 3 : 1));
  for (const GenerationRequest& request : requests) all.push_back(scheduler.submit(request));
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<std::string> outputs = outputs_of(*all[i], requests[i].n);
    for (size_t k = 0; k < outputs.size(); ++k)
      EXPECT_EQ(outputs[k], alone_in_session(loaded, requests[i], uint32_t(7 * i + k))) << prompts[i];
  }
  const ServeNumbers numbers = scheduler.numbers();
  EXPECT_GT(numbers.generation_tokens, 0);
}

// With a draft, and with what a client expects, outputs are those without; both are counted.
TEST(Scheduler, DraftsChangeNoOutput) {
  arch::Model m = served_tiny();
  m.config["context"] = 48;
  const infer::LoadedModel loaded(engine(), m);
  const std::vector<std::string> prompts = {"abcabc", "j", "abcab h", "feed feed"};
  std::vector<std::string> alone;
  for (const infer::DraftOptions& draft :
       {infer::DraftOptions{.most = 4}, {.look_up = true, .most = 4}, {.model = &loaded, .most = 4}}) {
    SchedulerOptions options = small_scheduler();
    options.session.context = 256;
    options.draft = draft;
    Scheduler scheduler(loaded, options);
    const RunningScheduler running(scheduler);
    const auto all_outputs = [&](bool expects) {
      std::vector<std::shared_ptr<Answering>> all;
      for (size_t i = 0; i < prompts.size(); ++i) {
        GenerationRequest request = asked(m, prompts[i], uint32_t(3 * i), 2);
        request.generate.predict = 20;
        request.top = i == 1 ? 2 : -1;
        if (expects)
          request.expected = std::make_shared<const std::vector<text::TokenId>>(m.tokenizer->encode(alone[2 * i]));
        all.push_back(scheduler.submit(std::move(request)));
      }
      std::vector<std::string> outputs;
      for (const auto& one : all)
        for (std::string& text : outputs_of(*one, 2)) outputs.push_back(std::move(text));
      return outputs;
    };
    const std::vector<std::string> outputs = all_outputs(false);
    if (alone.empty()) alone = outputs;
    EXPECT_EQ(outputs, alone);
    const ServeNumbers before = scheduler.numbers();
    EXPECT_EQ(before.drafted_tokens > 0, draft.is_on());
    EXPECT_EQ(all_outputs(true), alone);
    const ServeNumbers after = scheduler.numbers();
    // Of each request the first output is the one that was expected; without a draft few rows are free for it.
    EXPECT_GE(after.accepted_tokens - before.accepted_tokens, draft.is_on() ? 4 * 12 : 1);
    EXPECT_GE(after.drafted_tokens, after.accepted_tokens);
    EXPECT_EQ(after.generation_tokens, 2 * before.generation_tokens);
  }
}

TEST(Scheduler, ChancesAreTold) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  Scheduler scheduler(loaded, small_scheduler());
  const RunningScheduler running(scheduler);
  GenerationRequest request = asked(m, "abcabc", 1);
  request.echo = true;
  request.top = 2;
  request.generate.predict = 0;
  const auto answering = scheduler.submit(request);
  std::vector<std::optional<TokenChance>> tokens;
  std::string text;
  for (;;) {
    const auto delta = answering->next(20);
    ASSERT_TRUE(delta.has_value());
    text += delta->text;
    tokens.insert(tokens.end(), delta->tokens.begin(), delta->tokens.end());
    if (delta->ended) break;
  }
  EXPECT_EQ(text, "abcabc");
  ASSERT_EQ(tokens.size(), 6U);
  EXPECT_FALSE(tokens[0].has_value());
  infer::Session session(loaded, {.context = 16, .exact = true});
  const std::span<const float> rows = session.feed_all(request.prompts[0]);
  for (size_t i = 1; i < tokens.size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < 11; ++k) sum += std::exp(double(rows[(i - 1) * 11 + k]));
    ASSERT_EQ(tokens[i]->id, request.prompts[0][i]);
    EXPECT_NEAR(tokens[i]->chance, rows[(i - 1) * 11 + tokens[i]->id] - std::log(sum), 1e-4);
    ASSERT_EQ(tokens[i]->top.size(), 2U);
    EXPECT_GE(tokens[i]->top[0].second, tokens[i]->top[1].second);
    EXPECT_GE(tokens[i]->top[0].second, tokens[i]->chance);
  }
}

// Clients that count on as many logarithms as tokens get them, the text's end included; a chat's are those of its text.
// A narrowed row has what log-probabilities take, unless a token or the sum at temperature 1 is not known.
TEST(Scheduler, ChancesOfNarrowedRowsFetchNothing) {
  std::vector<float> logits(9000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(std::sin(double(i * i) * 0.11) * 6);
  infer::Narrowed narrowed;
  narrowed.vocabulary = std::ssize(logits);
  for (size_t i = 0; i < logits.size(); ++i) narrowed.best.push_back({text::TokenId(i), logits[i]});
  std::sort(narrowed.best.begin(), narrowed.best.end(), infer::is_better);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - narrowed.best[0].logit);
  narrowed.sum = sum;
  const double all = narrowed.best[0].logit + std::log(sum);
  narrowed.best.resize(40);
  const text::TokenId best = narrowed.best[3].id, far = 17;
  narrowed.front.push_back({1, {logits.begin() + 128, logits.begin() + 256}});
  for (const double temperature : {1.0, 0.7})
    for (const text::TokenId id : {best, far, text::TokenId(130)}) {
      narrowed.temperature = temperature;
      int fetched = 0;
      const infer::LogitRow row(narrowed, [&] {
        ++fetched;
        return std::span<const float>(logits);
      });
      const TokenChance told = chance_of(row, id, 5);
      EXPECT_EQ(fetched, temperature != 1 || id == far ? 1 : 0);
      EXPECT_NEAR(told.chance, logits[size_t(id)] - all, 1e-5);
      ASSERT_EQ(told.top.size(), 5U);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(told.top[i].first, narrowed.best[i].id);
        EXPECT_NEAR(told.top[i].second, narrowed.best[i].logit - all, 1e-5);
      }
    }
}

TEST(Scheduler, TheEndOfACompletionIsTold) {
  arch::Model m = served_tiny();
  const std::vector<text::TokenId> ends = {1, 2, 3, 4, 5};
  m.tokenizer = m.tokenizer->with_ends(ends);
  const infer::LoadedModel loaded(engine(), m);
  Scheduler scheduler(loaded, small_scheduler());
  const RunningScheduler running(scheduler);
  int64_t ended = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    for (const bool is_chat : {false, true}) {
      GenerationRequest request = asked(m, "jjj", seed);
      request.top = 1;
      request.is_chat = is_chat;
      const auto answering = scheduler.submit(request);
      int64_t told = 0;
      for (;;) {
        const auto delta = answering->next(20);
        ASSERT_TRUE(delta.has_value());
        told += std::ssize(delta->tokens);
        if (!delta->ended) continue;
        const bool by_token = delta->answer.reason == infer::EndReason::end_token;
        EXPECT_EQ(told, delta->answer.made - (by_token && is_chat ? 1 : 0));
        ended += by_token ? 1 : 0;
        break;
      }
    }
  }
  EXPECT_GT(ended, 0);
}

TEST(Scheduler, AFullQueueSaysSo) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  SchedulerOptions options = small_scheduler();
  options.parallel = 1;
  options.queue = 2;
  Scheduler scheduler(loaded, options);  // nobody runs it yet
  std::vector<std::shared_ptr<Answering>> all;
  for (uint32_t i = 0; i < 3; ++i) all.push_back(scheduler.submit(asked(m, "abc", i)));
  try {
    (void)scheduler.submit(asked(m, "abc", 9));
    ADD_FAILURE() << "the queue has no end";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status, 429);
  }
  RunningScheduler running(scheduler);
  for (const auto& one : all) EXPECT_FALSE(outputs_of(*one, 1)[0].empty());
  (void)outputs_of(*scheduler.submit(asked(m, "abc", 9)), 1);  // there is room again
  scheduler.drain();
  running.wait();
  EXPECT_THROW((void)scheduler.submit(asked(m, "abc", 9)), Refusal);
}

TEST(Scheduler, WhoLeavesOrTakesTooLongIsLetGo) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  SchedulerOptions options = small_scheduler();
  options.seconds = 0.05;
  Scheduler scheduler(loaded, options);
  const auto left = scheduler.submit(asked(m, "abc", 1));
  left->cancel(CancelReason::client_left);
  const auto late = scheduler.submit(asked(m, "abc", 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  const RunningScheduler running(scheduler);
  const auto delta = late->next(20);
  ASSERT_TRUE(delta.has_value());
  EXPECT_TRUE(delta->ended && delta->out_of_time);
  for (int i = 0; i < 200 && scheduler.numbers().cancelled == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(scheduler.numbers().cancelled, 1);
  EXPECT_EQ(scheduler.numbers().out_of_time, 1);
}

TEST(Scheduler, AReaderThatDoesNotReadIsLetGo) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  SchedulerOptions options = small_scheduler();
  options.most_bytes = 1;
  Scheduler scheduler(loaded, options);
  const RunningScheduler running(scheduler);
  const auto answering = scheduler.submit(asked(m, "abc", 1));
  for (int i = 0; i < 400 && scheduler.numbers().cancelled == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THROW((void)answering->next(1), Refusal);
}

TEST(Scheduler, StoppingFailsWhatIsLeft) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  Scheduler scheduler(loaded, small_scheduler());
  const auto answering = scheduler.submit(asked(m, "abc", 1));
  scheduler.run([] { return false; });
  EXPECT_THROW((void)answering->next(1), Refusal);
}

TEST(Scheduler, VectorsAreThoseOfTheEmbedder) {
  const arch::Model m = served_tiny();
  const infer::LoadedModel loaded(engine(), m);
  SchedulerOptions options = small_scheduler();
  Scheduler scheduler(loaded, options);
  const RunningScheduler running(scheduler);
  EmbeddingRequest request;
  for (int i = 0; i < 11; ++i)
    request.inputs.push_back(m.tokenizer->encode(std::string(size_t(1 + i), char('a' + i % 5))));
  const auto vectors = scheduler.submit(request)->take(20);
  ASSERT_TRUE(vectors && vectors->size() == request.inputs.size());
  infer::Embedder embedder(loaded, {.exact = true});
  for (size_t i = 0; i < vectors->size(); ++i) {
    auto own = embedder.embed(request.inputs[i], options.pooling).at(0);
    infer::normalise(own, 2);
    EXPECT_GT(infer::cosine(own, (*vectors)[i]), 0.99999);
  }
}

}  // namespace
}  // namespace lumen::model::serve
