// needs: none. What a session was said to need is what it takes: state and values by the programs themselves, and the
// memory of the process while long prompts and many sequences are computed.
#include "model/infer/session/forecast.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

// Wide keys, so that the cache is what counts.
arch::Model wide_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  return initialise(family,
                    family->config("", {{"vocab", 64},
                                        {"hidden", 64},
                                        {"layers", 4},
                                        {"heads", 4},
                                        {"kv_heads", 4},
                                        {"head_dim", 64},
                                        {"ffn", 64},
                                        {"context", 8192}}),
                    3);
}

SessionOptions small_cache() {
  const FormatRef format = test_library()->formats().get("q8_0");
  return {.context = 8192, .chunk = 256, .keys = format, .values = format};
}

std::vector<text::TokenId> text(int64_t count) {
  std::vector<text::TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>(i * 29 % 64));
  return tokens;
}

// Bytes that a program and the inputs that are its own take; inputs that others share are `there`.
int64_t taken_by(const graph::Graph& graph, int64_t rows, const std::vector<std::string>& there) {
  run::CompileOptions options;
  options.symbols = {{"R", rows}};
  const auto program = engine().compile(graph, options);
  int64_t bytes = program->arena_bytes();
  for (const std::string& name : program->input_names())
    if (std::ranges::find(there, name) == there.end()) bytes += graph::byte_size(program->input_type(name));
  return bytes;
}

// Rows that stay on the device are looked at again by programs with arenas and inputs of their own.
TEST(Forecast, CountsFurtherLooksAtRows) {
  const arch::FamilyRef family = test_library()->family("llama");
  graph::Config config = wide_model().config;
  config["vocab"] = 6000;
  const arch::Model m = initialise(family, config, 3);
  const LoadedModel loaded(engine(), m);
  const Narrowing narrowing(6000, Narrowing::Rows::one);
  const arch::Library& library = family->library();
  const int64_t further = further_bytes(loaded, narrowing, 1);
  const int64_t want = taken_by(FurtherRows::looking(library, narrowing), 1, {Narrowing::kLogits}) +
                       taken_by(FurtherRows::counting(library, narrowing), 1, {Narrowing::kLogits, Narrowing::kMasks});
  EXPECT_GE(further, want);
  EXPECT_LE(further, want + 16 * 512);
  SessionOptions options = {.context = 256, .chunk = 8};
  const int64_t without = forecast(loaded, options).work, without_many = forecast_many(loaded, options).work;
  options.narrow = Narrow::always;
  EXPECT_GE(forecast(loaded, options).work, without + further);
  EXPECT_GE(forecast_many(loaded, options).work, without_many + further);
}

TEST(Forecast, CountsCachesInTheirFormat) {
  const arch::Model m = wide_model();
  const LoadedModel loaded(engine(), m);
  const MemoryForecast f = forecast(loaded, small_cache());
  // Keys and values of 4 layers, 4 heads of 64 numbers, 8192 positions, 8.5 bits each.
  EXPECT_EQ(f.cache, 2 * 4 * 4 * 8192 * 64 * 34 / 32);
  EXPECT_EQ(forecast(loaded, {.context = 8192, .chunk = 256}).cache, 2 * 4 * 4 * 8192 * 64 * 4);
  EXPECT_EQ(f.weights, m.weight_bytes());
  EXPECT_GT(f.work, 0);
}

// A long context costs what is written of it, though every head of every layer has a place of its own in its caches.
TEST(Forecast, AFewTokensTakeLittleOfALongContext) {
  const arch::Model m = wide_model();
  const LoadedModel loaded(engine(), m);
  const SessionOptions options = {.context = 8192, .chunk = 8};
  ASSERT_GT(forecast(loaded, options).cache, 63 * kMiB);
  {
    Session warm(loaded, options);
    (void)warm.feed(text(3));
  }
  Session s(loaded, options);
  const int64_t before = resident();
  (void)s.feed(text(3));
  EXPECT_LT(resident() - before, 16 * kMiB);
}

// Everything is used once, so that kernels are compiled; what is taken then is the session's own.
TEST(Forecast, ALongPromptStaysWithin) {
  const arch::Model m = wide_model();
  const LoadedModel loaded(engine(), m);
  const SessionOptions options = small_cache();
  const auto read = [&](Session& s, int64_t count) {
    const auto tokens = text(count);
    (void)s.feed(tokens);
    for (const text::TokenId id : {1, 2, 3}) (void)s.feed({&id, 1});
  };
  {
    Session warm(loaded, options);
    read(warm, 300);
  }
  const MemoryForecast f = forecast(loaded, options);
  const int64_t before = resident();
  Session s(loaded, options);
  read(s, 8000);
  const int64_t taken = resident() - before;
  EXPECT_LT(taken, f.cache + f.work + 4 * kMiB);
  EXPECT_GT(taken, f.cache / 2);
}

TEST(Forecast, ManySequencesStayWithin) {
  const arch::Model m = wide_model();
  const LoadedModel loaded(engine(), m);
  const SessionOptions options = small_cache();
  const auto write = [&](ManySession& s, int64_t each) {
    std::vector<std::vector<text::TokenId>> tokens(16, text(each));
    std::vector<ManySession::Part> parts;
    for (int i = 0; i < 16; ++i) parts.push_back({s.open(), tokens[static_cast<size_t>(i)]});
    (void)s.feed(parts);
    for (ManySession::Part& p : parts) p.tokens = p.tokens.first(1);
    for (int step = 0; step < 2; ++step) (void)s.feed(parts);
  };
  {
    ManySession warm(loaded, options);
    write(warm, 20);
  }
  const MemoryForecast f = forecast_many(loaded, options);
  const int64_t before = resident();
  ManySession s(loaded, options);
  write(s, 300);
  const int64_t taken = resident() - before;
  EXPECT_LT(taken, f.cache + f.work + 4 * kMiB);
  EXPECT_GT(taken, f.cache / 4);
}

// What the engine itself counts, to the byte: caches, values and what steps are handed.
int64_t counted(const std::function<void(const LoadedModel&)>& work, const arch::Model& m) {
  run::Engine own(
      run::Engine::Options{.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string(),
                           .threads = 2,
                           .machine = nullptr,
                           .tune = false});
  const LoadedModel loaded(own, m);
  const int64_t before = own.device().memory().held;
  work(loaded);
  return own.device().memory().peak - before;
}

TEST(Forecast, CountedMemoryStaysWithin) {
  const arch::Model m = wide_model();
  SessionOptions options = small_cache();
  options.context = 1024;
  const auto close = [](int64_t peak, const MemoryForecast& f) {
    EXPECT_LE(peak, f.cache + f.work);
    EXPECT_GT(peak, (f.cache + f.work) * 9 / 10);
  };
  MemoryForecast f;
  int64_t peak = counted(
      [&](const LoadedModel& loaded) {
        f = forecast(loaded, options, 20);
        Session s(loaded, options);
        for (const int64_t n : {400, 200, 100, 60, 30, 15, 8, 1}) (void)s.feed(text(n));
        for (const int64_t n : {2, 3, 12, 21}) (void)s.feed_all(text(n));  // drafts of up to 20
      },
      m);
  close(peak, f);
  const ManyLimits limits{.longest = 300, .sequences = 7};
  options.context = 2200;
  peak = counted(
      [&](const LoadedModel& loaded) {
        f = forecast_many(loaded, options, limits);
        ManySession s(loaded, options, limits);
        std::vector<std::vector<text::TokenId>> tokens;
        std::vector<ManySession::Part> parts;
        for (const int64_t n : {290, 200, 70, 18, 5, 290}) tokens.push_back(text(n));
        for (const auto& t : tokens) parts.push_back({s.open(), t});
        (void)s.feed(parts);
        const int last = s.open();
        EXPECT_EQ(s.share(parts[0].sequence, last, 285), 285);
        parts.push_back({last, {}});
        for (ManySession::Part& p : parts) p.tokens = std::span(tokens[0]).first(1);
        for (size_t n = parts.size(); n > 0; --n) (void)s.feed(std::span(parts).first(n));
        EXPECT_EQ(s.taken_bytes() <= f.cache + f.work, true);
      },
      m);
  close(peak, f);
}

TEST(Forecast, CountedMemoryOfWindowsStaysWithin) {
  arch::Model m = read_hf(test_library(), std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures" /
                                              "families" / "mistral");
  m.config["context"] = 4096;
  m.config["window_size"] = 40;
  const SessionOptions options = {.context = 8000, .chunk = 64};
  const ManyLimits limits{.longest = 2000, .sequences = 4};
  MemoryForecast f;
  const int64_t peak = counted(
      [&](const LoadedModel& loaded) {
        f = forecast_many(loaded, options, limits);
        ManySession s(loaded, options, limits);
        EXPECT_LT(s.near_pages(), 40);
        std::vector<std::vector<text::TokenId>> tokens(4);
        std::vector<ManySession::Part> parts;
        for (auto& t : tokens) {
          for (int i = 0; i < 700; ++i) t.push_back(i * 7 % 61);
          parts.push_back({s.open(), t});
        }
        (void)s.feed(parts);
        for (ManySession::Part& p : parts) p.tokens = p.tokens.first(1);
        for (size_t n = 1; n <= 4; ++n) (void)s.feed(std::span(parts).first(n));
        for (ManySession::Part& p : parts) p.tokens = std::span(tokens[0]).first(9);
        (void)s.feed(parts);
      },
      m);
  EXPECT_LE(peak, f.cache + f.work);
  EXPECT_GT(peak, (f.cache + f.work) / 2);
}

TEST(Forecast, WhatCannotFitIsRefusedFirst) {
  const arch::Model m = wide_model();
  const LoadedModel loaded(engine(), m);
  const auto code_of = [&](auto make) {
    try {
      make();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("context of"), std::string::npos) << e.what();
      return e.code();
    }
    return Exit::ok;
  };
  const SessionOptions huge = {.context = int64_t{1} << 31};
  EXPECT_EQ(code_of([&] { Session s(loaded, huge); }), Exit::hardware);
  EXPECT_EQ(code_of([&] { ManySession s(loaded, huge); }), Exit::hardware);
}

}  // namespace
}  // namespace lumen::model::infer
