// needs: none. Sequences that are generated together come and go: each is the one that would be generated alone.
#include "model/infer/generate/sequence_batch.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

arch::Model batch_model() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

SessionOptions batch_session(int64_t context = 64) {
  SessionOptions session;
  session.exact = true;
  session.context = context;
  session.chunk = 4;
  session.page = 2;
  return session;
}

SequenceOrder order_of(const arch::Model& m, const std::string& prompt, uint32_t seed, int64_t predict = 5) {
  SequenceOrder order;
  order.prompt = m.tokenizer->encode(prompt);
  order.sampling.temperature = 0.9;
  order.sampling.seed = seed;
  order.generate.predict = predict;
  return order;
}

std::string written_alone(const LoadedModel& loaded, const SequenceOrder& order) {
  Generator g(loaded, {.context = 16, .exact = true}, order.sampling, order.generate);
  return g.answer(order.prompt, true, [](std::string_view) {}, [] { return true; }).text;
}

TEST(SequenceBatch, SequencesThatComeAndGoAreThoseGeneratedAlone) {
  const arch::Model m = batch_model();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, batch_session(), {.sequences = 3, .kept = 2}, 3);
  const std::vector<std::string> prompts = {"abc", "abcabcabc", "j", "abcab h", "feed", "abcabcabd", "hiddef babe"};
  std::vector<std::string> shown(prompts.size());
  std::vector<ManyAnswer> answers(prompts.size());
  int64_t ended = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    SequenceOrder order = order_of(m, prompts[i], uint32_t(i));
    order.show = [&, i](std::string_view text) { shown[i] += text; };
    order.done = [&, i](const ManyAnswer& answer) {
      answers[i] = answer;
      ++ended;
    };
    batch.add(std::move(order));
    (void)batch.step();  // others are under way already
    (void)batch.step();
  }
  while (batch.step()) {
  }
  EXPECT_EQ(ended, std::ssize(prompts));
  int64_t shared = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(answers[i].text, written_alone(loaded, order_of(m, prompts[i], uint32_t(i)))) << prompts[i];
    EXPECT_EQ(answers[i].text, shown[i]);
    EXPECT_EQ(answers[i].read + answers[i].shared, std::ssize(m.tokenizer->encode(prompts[i])));
    shared += answers[i].shared;
  }
  EXPECT_GT(shared, 0);
}

TEST(SequenceBatch, AnEndedSequenceIsAPrefixOfOthers) {
  const arch::Model m = batch_model();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, batch_session(), {.sequences = 2, .kept = 2}, 2);
  ManyAnswer first, second;
  SequenceOrder order = order_of(m, "abcdefgh", 1, 2);
  order.done = [&](const ManyAnswer& answer) { first = answer; };
  batch.add(std::move(order));
  while (batch.step()) {
  }
  order = order_of(m, "abcdefghij", 1, 2);
  order.done = [&](const ManyAnswer& answer) { second = answer; };
  batch.add(std::move(order));
  while (batch.step()) {
  }
  EXPECT_EQ(first.shared, 0);
  EXPECT_EQ(second.shared, 8);
  EXPECT_EQ(second.text, written_alone(loaded, order_of(m, "abcdefghij", 1, 2)));
}

TEST(SequenceBatch, ASequenceIsTakenOut) {
  const arch::Model m = batch_model();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, batch_session(), {.sequences = 2}, 2);
  const int64_t free = batch.session().free_pages();
  std::vector<EndReason> reasons;
  std::vector<uint64_t> numbers;
  for (uint32_t i = 0; i < 4; ++i) {
    SequenceOrder order = order_of(m, "abc", i, 8);
    order.done = [&](const ManyAnswer& answer) { reasons.push_back(answer.reason); };
    numbers.push_back(batch.add(std::move(order)));
  }
  (void)batch.step();
  (void)batch.step();
  EXPECT_TRUE(batch.remove(numbers[0]));   // under way
  EXPECT_TRUE(batch.remove(numbers[3]));   // in line
  EXPECT_FALSE(batch.remove(numbers[3]));  // gone
  EXPECT_EQ(reasons, std::vector<EndReason>(2, EndReason::interrupted));
  while (batch.step()) {
  }
  EXPECT_EQ(reasons.size(), 4U);
  EXPECT_EQ(reasons[2], EndReason::limit);
  EXPECT_EQ(batch.session().free_pages(), free);
}

// The logits behind the tokens of a prompt are those of a session that reads it.
TEST(SequenceBatch, PromptsAreScored) {
  const arch::Model m = batch_model();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, batch_session(), {.sequences = 2, .kept = 2}, 2);
  const std::vector<text::TokenId> prompt = m.tokenizer->encode("abcabcabcab");
  std::vector<std::vector<float>> rows;
  for (int turn = 0; turn < 2; ++turn) {  // the second time its beginning is known, and is read all the same
    rows.clear();
    SequenceOrder order = order_of(m, "abcabcabcab", 1, 0);
    order.read = [&](std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); };
    batch.add(std::move(order));
    while (batch.step()) {
    }
    ASSERT_EQ(rows.size(), prompt.size());
  }
  Session session(loaded, {.context = 16, .exact = true});
  const std::span<const float> all = session.feed_all(prompt);
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t k = 0; k < rows[i].size(); ++k) EXPECT_NEAR(rows[i][k], all[i * rows[i].size() + k], 1e-4);
}

TEST(SequenceBatch, WhatCannotGoOnFailsAlone) {
  const arch::Model m = batch_model();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, batch_session(), {.sequences = 2}, 2);
  std::string failed, text;
  SequenceOrder bad = order_of(m, "abc", 1);
  bad.generate.grammar = "root ::= \"zz\"";  // letters that the vocabulary has not
  bad.constraint = std::make_shared<const Constraint>(*m.tokenizer, bad.generate.grammar);
  bad.failed = [&](const Error& error) { failed = error.what(); };
  SequenceOrder good = order_of(m, "feed", 2);
  good.done = [&](const ManyAnswer& answer) { text = answer.text; };
  batch.add(std::move(bad));
  batch.add(std::move(good));
  while (batch.step()) {
  }
  EXPECT_NE(failed.find("grammar"), std::string::npos);
  EXPECT_EQ(text, written_alone(loaded, order_of(m, "feed", 2)));
  EXPECT_THROW(batch.add(order_of(m, std::string(17, 'a'), 1)), Error);  // more than a sequence may have
  EXPECT_THROW(batch.add(SequenceOrder{}), Error);
}

}  // namespace
}  // namespace lumen::model::infer
